// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/analyse/summary.h"
#include "bench/text/svg.h"

namespace c10d::bench {

// Time and bandwidth against size, with confidence bands and the memcpy ceiling. None where there
// is only one size.
struct Figure {
  std::string name;     // "time", "bandwidth"
  std::string caption;  // HTML
  Chart chart;
};
std::vector<Figure> charts_of(const OpTable& table, const Summary& summary);

// Parts of the report, as HTML.
std::string legend(const Summary& summary);
// charts_of(), side by side.
std::string op_figures(const OpTable& table, const Summary& summary);
// The numbers of one op.
std::string op_numbers(const OpTable& table, const Summary& summary);
// One row per backend that is not the base: how often slower, same, faster; geometric mean of the
// ratio.
std::string verdict_table(const Summary& summary);
// Ratio of each op at each size, one map per backend that is not the base.
std::string heat_maps(const Summary& summary);

}  // namespace c10d::bench
