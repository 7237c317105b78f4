// SPDX-License-Identifier: BSD-3-Clause
#include "bench/analyse/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "bench/analyse/alpha_beta_fit.h"
#include "bench/analyse/by_launch.h"
#include "bench/model/bandwidth.h"

namespace c10d::bench {
namespace {

// Below this a copy is over before its loop is warm, and a share of it says nothing.
constexpr std::uint64_t kCeilFrom = 4096;
// Between the slowest block of the fast mode and the fastest of the slow one.
constexpr double kModeGap = 1.8;

struct Group {
  std::map<std::string, Blocks> blocks;  // by backend
  std::map<std::string, SkipRecord> skips;
};

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

// The same of two sets of processes, which have launches in common and no blocks.
std::vector<double> launch_ratios(const Blocks& base, const Blocks& other) {
  std::map<int, std::vector<double>> below, above;
  for (const CellRecord* cell : base) below[cell->launch].push_back(cell->us.p50);
  for (const CellRecord* cell : other) above[cell->launch].push_back(cell->us.p50);
  std::vector<double> ratios;
  for (auto& [launch, times] : above)
    if (const auto found = below.find(launch); found != below.end())
      if (const double us = median(found->second), own = median(std::move(times));
          us > 0 && own > 0)
        ratios.push_back(own / us);
  return ratios;
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

BackendCell cell_of(const std::string& backend, const Group& group, std::optional<double> ceil_us,
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
  std::vector<double> medians;
  for (const CellRecord* block : blocks) medians.push_back(block->us.p50);
  cell.modes = two_modes(std::move(medians), kModeGap);
  put_quantiles(blocks, cell);
  cell.cpu = median_of(blocks, &CellRecord::cpu_us);
  cell.alg = median_of(blocks, &CellRecord::alg);
  cell.bus = median_of(blocks, &CellRecord::bus);
  cell.mem = median_of(blocks, &CellRecord::mem);
  cell.net = median_of(blocks, &CellRecord::net);
  const CellRecord& first = *blocks.front();
  const bool is_bound = first.placement != kSeveralHosts || has_connections(first);
  if (ceil_us && is_bound && bytes >= kCeilFrom && cell.p50.value > 0)
    cell.ceil = *ceil_us / cell.p50.value;
  return cell;
}

// What bounds collectives of ranks on several hosts.
struct Link {
  int hosts = 0;
  int ranks = 0;
  double rate = 0;  // GB/s in each direction, by as many connections as carry most

  // For what every host must send and receive of S bytes; nothing where that is not known.
  std::optional<double> microseconds(const CellKey& key, std::uint64_t bytes) const {
    const double least = bytes_between_hosts(key.op, bytes, hosts, ranks) * key.concurrent;
    return least > 0 ? std::optional(least * 1e-3 / rate) : std::nullopt;
  }
};

std::optional<Link> link_of(const Results& results) {
  double rate = 0;
  for (const CeilRecord& ceil : results.ceilings)
    if (ceil.kind == kLink && ceil.level == kBothWays) rate = std::max(rate, ceil.gbps.value_or(0));
  if (rate <= 0 || results.environments.empty()) return std::nullopt;
  const Json hosts = results.environments.front().value("hosts", Json::array());
  if (hosts.size() < 2) return std::nullopt;
  std::size_t ranks = 0;
  for (const Json& host : hosts) ranks += host.at("ranks").size();
  return Link{static_cast<int>(hosts.size()), static_cast<int>(ranks), rate};
}

std::vector<std::string> backends_of(const Results& results) {
  std::vector<std::string> names;
  if (results.run.is_object() && results.run.contains("backends"))
    names = results.run["backends"].get<std::vector<std::string>>();
  const auto add = [&](const std::string& name) {
    if (is_control(name)) return;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const CellRecord& cell : results.cells) add(cell.backend);
  for (const SkipRecord& skip : results.skips) add(skip.backend);
  return names;
}

// The sets of processes that took turns; none where all backends were in the same processes.
struct Sets {
  std::map<std::string, std::size_t> of_column;
  bool two_builds = false;

  explicit Sets(const Json& run) {
    if (!run.is_object() || !run.contains("sets")) return;
    for (std::size_t i = 0; i < run["sets"].size(); ++i) {
      const Json& set = run["sets"].at(i);
      const std::string side = set.value("side", "");
      two_builds = two_builds || side == "B";
      for (const Json& backend : set.at("backends"))
        of_column[backend.get<std::string>() + (side.empty() ? "" : "@" + side)] = i;
    }
  }
  bool are_apart(const std::string& a, const std::string& b) const {
    const auto first = of_column.find(a), second = of_column.find(b);
    return first != of_column.end() && second != of_column.end() && first->second != second->second;
  }
};

std::vector<std::size_t> bases_of(const std::vector<std::string>& backends, bool two_builds) {
  std::vector<std::size_t> bases(backends.size(), 0);
  for (std::size_t b = 0; two_builds && b < backends.size(); ++b) {
    std::string base = backends[b];
    if (base.ends_with("@B")) base.back() = 'A';
    const auto found = std::ranges::find(backends, base);
    bases[b] = found == backends.end() ? b : static_cast<std::size_t>(found - backends.begin());
  }
  return bases;
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

// What was measured twice in a launch: `of` against `against`, launch by launch.
std::optional<Estimate> ratio_of_twins(const Index& index, const std::string& of,
                                       const std::string& against, bool in_blocks) {
  std::map<int, std::vector<double>> launches;
  for (const auto& [key, sizes] : index.groups) {
    for (const auto& [bytes, group] : sizes) {
      const auto twin = group.blocks.find(of);
      const auto first = group.blocks.find(against);
      if (twin == group.blocks.end() || first == group.blocks.end()) continue;
      // Blocks of one process set are paired; of different ones, their medians.
      std::map<std::pair<int, int>, std::vector<double>> partners;
      std::map<std::pair<int, int>, std::vector<double>> times;
      const auto place = [&](const CellRecord& cell) {
        return std::pair(cell.launch, in_blocks ? cell.block : 0);
      };
      for (const CellRecord* cell : first->second) partners[place(*cell)].push_back(cell->us.p50);
      for (const CellRecord* cell : twin->second) times[place(*cell)].push_back(cell->us.p50);
      for (auto& [at, values] : times)
        if (const auto partner = partners.find(at); partner != partners.end())
          if (const double other = median(partner->second); other > 0)
            launches[at.first].push_back(median(std::move(values)) / other);
    }
  }
  if (launches.empty()) return std::nullopt;
  std::vector<std::vector<double>> values;
  for (auto& [launch, list] : launches) values.push_back(std::move(list));
  return bootstrap(values, 1);
}

// The base against itself; each backend in this company against alone.
std::vector<ControlRecord> controls_of(const Index& index, const std::vector<std::string>& backends,
                                       double min_effect) {
  std::vector<ControlRecord> controls;
  if (backends.empty()) return controls;
  const std::string& base = backends.front();
  if (const auto ratio = ratio_of_twins(index, base + kControlSuffix, base, true))
    controls.push_back({"aa", base, *ratio, trust_in(*ratio, min_effect)});
  for (const std::string& name : backends)
    if (const auto ratio = ratio_of_twins(index, name, name + kSoloSuffix, false))
      controls.push_back({"solo", name, *ratio, trust_in(*ratio, min_effect)});
  return controls;
}

void compare_with_base(const CellKey& table, double equiv, const Sets& sets, SizeRow& row,
                       const Group& group, Summary& summary) {
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    if (summary.is_base(i)) continue;
    BackendCell& cell = row.cells[i];
    const auto base = group.blocks.find(row.cells[summary.bases[i]].backend);
    const auto other = group.blocks.find(cell.backend);
    if (base == group.blocks.end() || other == group.blocks.end()) continue;
    CompareRecord record;
    record.key = table;
    record.key.bytes = row.bytes;
    record.base = base->first;
    record.other = cell.backend;
    record.ratio = sets.are_apart(record.base, record.other)
                       ? geometric_mean(launch_ratios(base->second, other->second))
                       : bootstrap(paired_ratios(base->second, other->second), row.bytes + i);
    record.verdict = verdict(record.ratio, equiv);
    if (record.ratio.value <= 0) continue;
    cell.compare = record;
    summary.compares.push_back(record);
  }
}

}  // namespace

std::string Summary::base_name() const {
  const bool is_one = std::ranges::count(bases, bases.front()) == std::ssize(bases);
  return is_one ? backends.front() : "the same backend of build A";
}

Summary summarise(const Results& results, bool compare, double equiv, double min_effect) {
  Summary summary;
  summary.backends = backends_of(results);
  const Sets sets(results.run);
  summary.bases = bases_of(summary.backends, sets.two_builds);
  summary.warnings = results.warnings;
  summary.controls = results.controls;
  if (results.run.is_object()) {
    summary.ranks = results.run.value("world", 0);
    summary.cuda = results.run.value("device", "cpu") == "cuda";
    summary.graph_ops = results.run.value("graph_ops", 0);
  }
  Index index;
  std::set<int> launches;
  for (const CellRecord& cell : results.cells) {
    index.at(cell.key).blocks[cell.backend].push_back(&cell);
    launches.insert(cell.launch);
    if (is_control(cell.backend)) summary.wrong += cell.wrong;  // in no table
    summary.blocks = std::max(summary.blocks, cell.block + 1);
  }
  summary.launches = static_cast<int>(launches.size());
  for (const SkipRecord& skip : results.skips) index.at(skip.key).skips.emplace(skip.backend, skip);
  const std::optional<Link> link = link_of(results);
  summary.several_hosts = std::ranges::any_of(
      results.cells, [](const CellRecord& cell) { return cell.placement == kSeveralHosts; });
  std::map<std::pair<std::uint64_t, bool>, std::vector<double>> copies;
  for (const CeilRecord& ceil : results.ceilings)
    if (ceil.is_beside_cells()) copies[{ceil.bytes, ceil.hot}].push_back(ceil.us);
  for (const CellKey& key : index.order) {
    OpTable table;
    table.key = key;
    for (const auto& [bytes, group] : index.groups[key]) {
      SizeRow row;
      row.bytes = bytes;
      if (const auto copy = copies.find({bytes, key.cache == "hot"}); copy != copies.end())
        row.ceil_us = median(copy->second) * key.concurrent;
      if (link && summary.several_hosts) row.ceil_us = link->microseconds(key, bytes);
      for (const std::string& backend : summary.backends) {
        row.cells.push_back(cell_of(backend, group, row.ceil_us, bytes));
        const BackendCell& cell = row.cells.back();
        (cell.skip ? summary.skipped : summary.measured) += 1;
        summary.wrong += cell.wrong;
      }
      if (compare) compare_with_base(key, equiv, sets, row, group, summary);
      table.rows.push_back(std::move(row));
    }
    table.fits = fits_of(table);
    summary.tables.push_back(std::move(table));
  }
  if (summary.controls.empty()) summary.controls = controls_of(index, summary.backends, min_effect);
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
