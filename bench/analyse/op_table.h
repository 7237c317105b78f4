// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/model/record.h"

namespace c10d::bench {

// Behind a time that has two modes, and what that says below the table.
inline constexpr const char* kTwoModes = "*";
inline constexpr const char* kTwoModesLegend = "* two modes: W021 names them";

// One backend at one size, over all its blocks and launches.
struct BackendCell {
  std::string backend;
  std::optional<SkipRecord> skip;                  // then there is nothing else
  Estimate p50;                                    // us
  std::optional<std::pair<double, double>> modes;  // us, where its blocks fall into two groups
  std::optional<double> cpu;                       // us, as CellRecord has it
  double min = 0;
  double p90 = 0;
  std::optional<double> p99;
  double max = 0;
  std::optional<double> alg, bus, mem, net;
  std::optional<double> ceil;  // the ceiling's time / this time
  std::uint64_t wrong = 0;
  std::uint64_t samples = 0;
  std::string algo;
  std::optional<CompareRecord> compare;  // against the base
};

struct SizeRow {
  std::uint64_t bytes = 0;
  std::optional<double> ceil_us;   // of what Summary::copy_name() says
  std::vector<BackendCell> cells;  // in the order of Summary::backends
};

// One op with one dtype, reduce op, root and place.
struct OpTable {
  CellKey key;  // bytes = 0
  std::vector<SizeRow> rows;
  std::vector<FitRecord> fits;
  std::string title() const;  // "all_reduce f32 sum, out of place"
};

}  // namespace c10d::bench
