// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/model/record.h"

namespace c10d::bench {

// One cell that two runs have: times of the new one against those of the old one.
struct CellDiff {
  CellKey key;
  std::string backend;
  Estimate old_us, new_us;
  Estimate ratio;  // new / old
  Verdict verdict = Verdict::none;
};

// Something that the runs say differently of themselves: CPU, versions, options.
struct FactDiff {
  std::string name;
  std::string old_text, new_text;  // empty: not there
};

struct RunDiff {
  std::vector<CellDiff> cells;
  std::vector<FactDiff> facts;
  std::size_t only_old = 0, only_new = 0;  // cells that the other run does not have
};

// `equiv` is the ratio around 1 that counts as the same.
RunDiff diff_runs(const Results& old_run, const Results& new_run, double equiv);

}  // namespace c10d::bench
