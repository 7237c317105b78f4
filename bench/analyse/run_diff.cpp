// SPDX-License-Identifier: BSD-3-Clause
#include "bench/analyse/run_diff.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "bench/analyse/by_launch.h"

namespace c10d::bench {
namespace {

using Cells = std::map<std::pair<CellKey, std::string>, Blocks>;  // by key and backend

constexpr std::uint64_t kSeed = 1;

Cells cells_of(const Results& results) {
  Cells cells;
  for (const CellRecord& cell : results.cells)
    if (cell.us.p50 > 0) cells[{cell.key, cell.backend}].push_back(&cell);
  return cells;
}

std::vector<std::vector<double>> times_of(const Blocks& blocks) {
  return by_launch(blocks, [](const CellRecord& cell) { return std::optional(cell.us.p50); });
}

// Every fact by its path: "cpu", "libs.gloo.ver". What always differs, or says nothing, is left
// out.
void add_facts(const Json& value, const std::string& path, std::map<std::string, std::string>& to) {
  if (value.is_object()) {
    for (const auto& [name, inner] : value.items())
      add_facts(inner, path.empty() ? name : path + "." + name, to);
    return;
  }
  for (const char* left_out : {"v", "t", "id", "start", "argv", "conv", "seed"})
    if (path == left_out || path.starts_with(std::string(left_out) + ".")) return;
  to[path] = value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<FactDiff> diff_facts(const Results& old_run, const Results& new_run) {
  std::map<std::string, std::string> old_facts, new_facts;
  for (const auto& [results, facts] :
       {std::pair(&old_run, &old_facts), std::pair(&new_run, &new_facts)}) {
    add_facts(results->run, "", *facts);
    if (!results->environments.empty()) add_facts(results->environments.front(), "", *facts);
  }
  std::vector<FactDiff> differing;
  std::map<std::string, std::string> names = old_facts;
  names.insert(new_facts.begin(), new_facts.end());
  for (const auto& [name, text] : names) {
    FactDiff fact{name, old_facts[name], new_facts[name]};
    if (fact.old_text != fact.new_text) differing.push_back(std::move(fact));
  }
  return differing;
}

}  // namespace

RunDiff diff_runs(const Results& old_run, const Results& new_run, double equiv) {
  RunDiff diff;
  diff.facts = diff_facts(old_run, new_run);
  const Cells old_cells = cells_of(old_run), new_cells = cells_of(new_run);
  for (const auto& [cell, blocks] : old_cells) {
    const auto other = new_cells.find(cell);
    if (other == new_cells.end()) {
      ++diff.only_old;
      continue;
    }
    const auto old_us = times_of(blocks), new_us = times_of(other->second);
    CellDiff both{cell.first, cell.second, bootstrap(old_us, kSeed), bootstrap(new_us, kSeed),
                  bootstrap_ratio(new_us, old_us, kSeed)};
    both.verdict = verdict(both.ratio, equiv);
    diff.cells.push_back(std::move(both));
  }
  diff.only_new = new_cells.size() - diff.cells.size();
  return diff;
}

}  // namespace c10d::bench
