// SPDX-License-Identifier: BSD-3-Clause
#include "bench/analyse/warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/model/bandwidth.h"
#include "bench/text/format.h"

namespace c10d::bench {
namespace {

// "16M" where that is exact: as --sizes and --only take it.
std::string size_word(std::uint64_t bytes) {
  const char* const units[] = {"", "K", "M", "G"};
  std::size_t unit = 0;
  for (; unit < 3 && bytes >= 1024 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, units[unit]);
}

void look_at_distances(const Results& results, std::vector<WarnRecord>& found) {
  std::set<std::string> buckets;
  for (const CellRecord& cell : results.cells)
    if (cell.rtt) buckets.insert(cell.rtt->bucket);
  if (buckets.size() > 1)
    found.push_back(
        {"W006",
         "the round trip between ranks 0 and 1 changed: blocks with a like round trip are "
         "compared, or all where there are none"});
}

void look_at_controls(const Summary& summary, double min_effect, std::vector<WarnRecord>& found) {
  for (const ControlRecord& control : summary.controls) {
    if (control.trust == Trust::ok || !control.ratio.ci95) continue;
    const std::string what =
        control.kind == "aa" ? "against itself" : "beside other backends, compared with alone,";
    const std::string interval =
        fmt::format("{} {} is {}", control.backend, what, ratio_text(control.ratio));
    if (control.trust == Trust::wide)
      found.push_back(
          {"W007", fmt::format("noisy: {}: differences of {:g} % cannot be detected; more "
                               "--launches, --blocks or --time would help",
                               interval, min_effect * 100)});
    else if (control.kind == "aa")
      found.push_back({"W007", "noisy: " + interval});
    else
      found.push_back({"W010", "the other backends interfere: " + interval});
  }
}

void look_for_modes(const Summary& summary, std::vector<WarnRecord>& found) {
  for (const OpTable& table : summary.tables)
    for (const SizeRow& row : table.rows)
      for (const BackendCell& cell : row.cells) {
        if (!cell.modes) continue;
        const std::string& op = table.key.op;
        found.push_back({"W021",
                         fmt::format("{} {} {}: two modes, {} and {} us", cell.backend, op,
                                     bytes_text(row.bytes), microseconds_text(cell.modes->first),
                                     microseconds_text(cell.modes->second)),
                         fmt::format("{}:{}:{}", op, cell.backend, size_word(row.bytes))});
      }
}

// A mean may be rounded in more than one way; everything else has one right result.
void look_at_hashes(const Results& results, std::vector<WarnRecord>& found) {
  std::map<CellKey, std::set<std::string>> hashes;
  for (const CellRecord& cell : results.cells)
    if (!cell.hash.empty() && cell.key.redop != "avg") hashes[cell.key].insert(cell.hash);
  for (const auto& [key, set] : hashes)
    if (set.size() > 1)
      found.push_back({"W005", fmt::format("{} {}: results differ between backends or launches",
                                           key.op, bytes_text(key.bytes))});
}

// The kernel took the CPU from a rank once in fifty iterations or more often; on a GPU, where an
// iteration is a batch, ops.
void look_at_switches(const Results& results, std::vector<WarnRecord>& found) {
  constexpr double kOften = 0.02;
  double iterations = 0;
  double taken = 0;
  for (const CellRecord& cell : results.cells) {
    iterations += static_cast<double>(cell.iters) * (cell.device == "cuda" ? cell.burst : 1);
    taken += static_cast<double>(cell.switches[1]);
  }
  const bool is_meant = results.run.is_object() && results.run.value("busy", 0) > 0;
  if (iterations > 0 && taken > kOften * iterations && !is_meant)
    found.push_back({"W011", fmt::format("ranks lost their CPU {:.0f} times in {:.0f} iterations: "
                                         "other work runs here, or there are too few CPUs",
                                         taken, iterations)});
}

// Starts at an agreed time were asked for.
void look_at_clocks(const Results& results, std::vector<WarnRecord>& found) {
  if (!results.run.is_object() || results.run.value("sync", "") != "window") return;
  std::set<std::string> cells;
  double error = 0;
  for (const CellRecord& cell : results.cells) {
    if (cell.sync != "barrier" || !cell.clock_us) continue;
    cells.insert(fmt::format("{} {} {}", cell.backend, cell.key.op, bytes_text(cell.key.bytes)));
    error = std::max(error, *cell.clock_us);
  }
  if (!cells.empty())
    found.push_back({"W024", fmt::format("the clocks of the hosts are known to {} us only, more "
                                         "than 5 % of p50: by barrier start {}",
                                         microseconds_text(error), fmt::join(cells, ", "))});
}

}  // namespace

std::vector<WarnRecord> findings(const Results& results, const Summary& summary,
                                 double min_effect) {
  std::vector<WarnRecord> found;
  look_at_hashes(results, found);
  look_at_distances(results, found);
  look_at_switches(results, found);
  look_at_clocks(results, found);
  look_at_controls(summary, min_effect, found);
  look_for_modes(summary, found);
  return found;
}

}  // namespace c10d::bench
