// SPDX-License-Identifier: BSD-3-Clause
#include "bench/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/bandwidth.h"

namespace c10d::bench {
namespace {

// Below this a copy is over before its loop is warm, and a share of it says nothing.
constexpr std::uint64_t kCeilFrom = 4096;

using Blocks = std::vector<const CellRecord*>;
struct Group {
  std::map<std::string, Blocks> blocks;  // by backend
  std::map<std::string, SkipRecord> skips;
};

template <class F>
std::vector<std::vector<double>> by_launch(const Blocks& blocks, F&& value) {
  std::map<int, std::vector<double>> launches;
  for (const CellRecord* cell : blocks)
    if (const std::optional<double> v = value(*cell); v && *v > 0)
      launches[cell->launch].push_back(*v);
  std::vector<std::vector<double>> values;
  for (auto& [launch, list] : launches) values.push_back(std::move(list));
  return values;
}

bool same_bucket(const CellRecord& a, const CellRecord& b) {
  return !a.rtt || !b.rtt || a.rtt->bucket == b.rtt->bucket;
}

// other / base, paired inside each block. Pairs whose ranks met at different distances are left out
// as long as there are others.
std::vector<std::vector<double>> paired_ratios(const Blocks& base, const Blocks& other) {
  std::map<std::pair<int, int>, const CellRecord*> partner;
  for (const CellRecord* cell : base) partner[{cell->launch, cell->block}] = cell;
  const auto ratio = [&](bool any_bucket) {
    return by_launch(other, [&](const CellRecord& cell) -> std::optional<double> {
      const auto found = partner.find({cell.launch, cell.block});
      if (found == partner.end() || found->second->us.p50 <= 0) return std::nullopt;
      if (!any_bucket && !same_bucket(*found->second, cell)) return std::nullopt;
      return cell.us.p50 / found->second->us.p50;
    });
  };
  std::vector<std::vector<double>> ratios = ratio(false);
  return ratios.empty() ? ratio(true) : ratios;
}

std::optional<double> median_of(const Blocks& blocks, std::optional<double> CellRecord::*field) {
  std::vector<double> values;
  for (const CellRecord* cell : blocks)
    if (cell->*field) values.push_back(*(cell->*field));
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

// Quantiles over all samples, where they were kept; else over what each block says of itself.
void put_quantiles(const Blocks& blocks, BackendCell& cell) {
  std::vector<const std::vector<double>*> samples;
  std::uint64_t kept = 0;
  std::vector<double> p90;
  std::vector<double> p99;
  cell.min = blocks.front()->us.min;
  for (const CellRecord* block : blocks) {
    samples.push_back(&block->samples);
    kept += block->samples.size();
    p90.push_back(block->us.p90);
    if (block->us.p99) p99.push_back(*block->us.p99);
    cell.min = std::min(cell.min, block->us.min);
    cell.max = std::max(cell.max, block->us.max);
    cell.samples += block->iters;
    cell.wrong += block->wrong;
    if (!block->algo.empty()) cell.algo = block->algo;
  }
  if (kept == cell.samples) {
    cell.p90 = balanced_quantile(samples, 0.9);
    if (kept >= kSamplesForP99) cell.p99 = balanced_quantile(samples, 0.99);
  } else {
    cell.p90 = median(std::move(p90));
    if (!p99.empty()) cell.p99 = median(std::move(p99));
  }
}

BackendCell cell_of(const std::string& backend, const Group& group, std::optional<double> memcpy_us,
                    std::uint64_t bytes) {
  BackendCell cell;
  cell.backend = backend;
  const auto found = group.blocks.find(backend);
  if (found == group.blocks.end()) {
    const auto skip = group.skips.find(backend);
    cell.skip = skip != group.skips.end()
                    ? skip->second
                    : SkipRecord{{}, backend, "missing", "not measured: the run ended before"};
    return cell;
  }
  const Blocks& blocks = found->second;
  cell.p50 = bootstrap(
      by_launch(blocks, [](const CellRecord& c) { return std::optional(c.us.p50); }), bytes + 1);
  put_quantiles(blocks, cell);
  cell.alg = median_of(blocks, &CellRecord::alg);
  cell.bus = median_of(blocks, &CellRecord::bus);
  cell.mem = median_of(blocks, &CellRecord::mem);
  if (memcpy_us && bytes >= kCeilFrom && cell.p50.value > 0)
    cell.ceil = *memcpy_us / cell.p50.value;
  return cell;
}

std::vector<std::string> backends_of(const Results& results) {
  std::vector<std::string> names;
  if (results.run.is_object() && results.run.contains("backends"))
    names = results.run["backends"].get<std::vector<std::string>>();
  const auto add = [&](const std::string& name) {
    if (name.ends_with(kControlSuffix)) return;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const CellRecord& cell : results.cells) add(cell.backend);
  for (const SkipRecord& skip : results.skips) add(skip.backend);
  return names;
}

// Keys in the order in which they were first met, sizes ascending.
struct Index {
  std::vector<CellKey> order;  // of tables, bytes = 0
  std::map<CellKey, std::map<std::uint64_t, Group>> groups;

  Group& at(CellKey key) {
    const std::uint64_t bytes = key.bytes;
    key.bytes = 0;
    const auto [found, added] = groups.try_emplace(key);
    if (added) order.push_back(key);
    return found->second[bytes];
  }
};

// The base against itself, over all cells that were measured twice.
std::vector<ControlRecord> control_of(const Index& index, const std::string& base) {
  std::map<int, std::vector<double>> launches;
  for (const auto& [key, sizes] : index.groups) {
    for (const auto& [bytes, group] : sizes) {
      const auto twin = group.blocks.find(base + kControlSuffix);
      const auto first = group.blocks.find(base);
      if (twin == group.blocks.end() || first == group.blocks.end()) continue;
      std::map<std::pair<int, int>, double> partner;
      for (const CellRecord* cell : first->second)
        partner[{cell->launch, cell->block}] = cell->us.p50;
      for (const CellRecord* cell : twin->second)
        if (const double p50 = partner[{cell->launch, cell->block}]; p50 > 0)
          launches[cell->launch].push_back(cell->us.p50 / p50);
    }
  }
  if (launches.empty()) return {};
  std::vector<std::vector<double>> values;
  for (auto& [launch, list] : launches) values.push_back(std::move(list));
  ControlRecord control{"aa", base, bootstrap(values, 1), true};
  if (control.ratio.ci95)
    control.ok = control.ratio.ci95->low <= 1 && control.ratio.ci95->high >= 1;
  return {control};
}

void compare_with_base(const CellKey& table, double equiv, SizeRow& row, const Group& group,
                       std::vector<CompareRecord>& compares) {
  const auto base = group.blocks.find(row.cells.front().backend);
  if (base == group.blocks.end()) return;
  for (std::size_t i = 1; i < row.cells.size(); ++i) {
    BackendCell& cell = row.cells[i];
    const auto other = group.blocks.find(cell.backend);
    if (other == group.blocks.end()) continue;
    CompareRecord record;
    record.key = table;
    record.key.bytes = row.bytes;
    record.base = base->first;
    record.other = cell.backend;
    record.ratio = bootstrap(paired_ratios(base->second, other->second), row.bytes + i);
    record.verdict = verdict(record.ratio, equiv);
    if (record.ratio.value <= 0) continue;
    cell.compare = record;
    compares.push_back(record);
  }
}

}  // namespace

std::string OpTable::title() const {
  std::string text = key.op;
  if (!key.dtype.empty()) text += ' ' + key.dtype;
  if (!key.redop.empty()) text += ' ' + key.redop;
  if (key.root >= 0) text += fmt::format(", root {}", key.root);
  if (key.place == "in") text += ", in place";
  return text;
}

Summary summarise(const Results& results, bool compare, double equiv) {
  Summary summary;
  summary.backends = backends_of(results);
  summary.warnings = results.warnings;
  summary.controls = results.controls;
  if (results.run.is_object()) summary.ranks = results.run.value("world", 0);
  Index index;
  std::set<int> launches;
  for (const CellRecord& cell : results.cells) {
    index.at(cell.key).blocks[cell.backend].push_back(&cell);
    launches.insert(cell.launch);
    summary.blocks = std::max(summary.blocks, cell.block + 1);
  }
  summary.launches = static_cast<int>(launches.size());
  for (const SkipRecord& skip : results.skips) index.at(skip.key).skips.emplace(skip.backend, skip);
  std::map<std::uint64_t, std::vector<double>> copies;
  for (const CeilRecord& ceil : results.ceilings)
    if (ceil.kind == "memcpy" && ceil.level.empty()) copies[ceil.bytes].push_back(ceil.us);
  for (const CellKey& key : index.order) {
    OpTable table;
    table.key = key;
    for (const auto& [bytes, group] : index.groups[key]) {
      SizeRow row;
      row.bytes = bytes;
      if (const auto copy = copies.find(bytes); copy != copies.end())
        row.memcpy_us = median(copy->second);
      for (const std::string& backend : summary.backends) {
        row.cells.push_back(cell_of(backend, group, row.memcpy_us, bytes));
        const BackendCell& cell = row.cells.back();
        (cell.skip ? summary.skipped : summary.measured) += 1;
        summary.wrong += cell.wrong;
      }
      if (compare) compare_with_base(key, equiv, row, group, summary.compares);
      table.rows.push_back(std::move(row));
    }
    summary.tables.push_back(std::move(table));
  }
  if (summary.controls.empty() && !summary.backends.empty())
    summary.controls = control_of(index, summary.backends.front());
  return summary;
}

std::vector<std::string> skip_notes(const Summary& summary) {
  std::map<std::pair<std::string, std::string>, std::uint64_t> counts;
  for (const OpTable& table : summary.tables)
    for (const SizeRow& row : table.rows)
      for (const BackendCell& cell : row.cells)
        if (cell.skip) ++counts[{cell.backend, cell.skip->reason}];
  std::vector<std::string> notes;
  for (const auto& [key, count] : counts)
    notes.push_back(
        fmt::format("{}: {} ({} cell{})", key.first, key.second, count, count == 1 ? "" : "s"));
  return notes;
}

}  // namespace c10d::bench
