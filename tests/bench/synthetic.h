// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/model/record.h"

namespace c10d::bench {

// Results as a run would leave them: the time of every block of a backend is base * factor, with a
// small wobble.
inline CellRecord synthetic_cell(const std::string& backend, std::uint64_t bytes, int launch,
                                 int block, double us) {
  CellRecord cell;
  cell.key = {"all_reduce", "f32", "sum", "out", -1, bytes};
  cell.backend = backend;
  cell.elems = bytes / 4;
  cell.launch = launch;
  cell.block = block;
  cell.iters = 3;
  cell.samples = {us * 0.9, us, us * 1.2};
  cell.us = quantiles(cell.samples);
  cell.alg = static_cast<double>(bytes) * 1e-3 / us;
  cell.hash = "0badcafe";
  return cell;
}

inline Results synthetic_results(const std::vector<std::pair<std::string, double>>& backends) {
  Results results;
  results.run = Json{{"v", 1},
                     {"t", "run"},
                     {"id", "test"},
                     {"tool", "c10d-bench"},
                     {"argv", {"c10d-bench", "compare", "a b"}},
                     {"command", "compare"},
                     {"seed", 42},
                     {"world", 2},
                     {"backends", Json::array()}};
  for (const auto& [name, factor] : backends) results.run["backends"].push_back(name);
  for (const std::uint64_t bytes :
       {std::uint64_t{1024}, std::uint64_t{65536}, std::uint64_t{1} << 20}) {
    for (int launch = 0; launch < 3; ++launch) {
      results.ceilings.push_back(
          {"memcpy", "", bytes, launch, 10.0, static_cast<double>(bytes) * 1e-4});
      for (int block = 0; block < 4; ++block)
        for (const auto& [name, factor] : backends)
          results.cells.push_back(synthetic_cell(
              name, bytes, launch, block,
              factor * (1 + 0.001 * ((launch + block) % 3)) * static_cast<double>(bytes) * 2e-4));
    }
  }
  return results;
}

}  // namespace c10d::bench
