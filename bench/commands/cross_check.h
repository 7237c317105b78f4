// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/model/options.h"

namespace c10d::bench {

struct CrossCheckOptions {
  double seconds = 0.3;  // of one size in one launch
  int launches = 3;
  std::vector<std::string> pythons = {"python3"};  // that have PyTorch
  // MPIs beside that of the mpirun on PATH, as behind the @ of a column.
  std::vector<std::string> mpis;
  Sync sync = Sync::loop;  // or own: each op, also of the loops, follows a barrier of its library
  bool cuda = false;       // on GPUs: nccl, and PyTorch's loop alone
};

// Whether this benchmark shows the times that users of a library see: all_reduce of two ranks, or
// of one on each GPU, as `run` measures it, against plain loops in processes of their own, one
// after the other in a random order in every launch. Prints a row per loop and size. Returns 0; 1
// when a row is outside its bounds or a program failed; 77 when there was nothing to compare.
// Throws InvalidArgument where there is no GPU for `cuda`, or no such MPI.
int run_cross_check(const CrossCheckOptions& options);

// A line of a plain loop: bytes and microseconds.
std::optional<std::pair<std::uint64_t, double>> parse_loop_line(std::string_view line);

// A row of the tables of OSU's and Intel's benchmarks: bytes, and the microseconds in that column.
std::optional<std::pair<std::uint64_t, double>> parse_table_row(std::string_view line, int column);

// Of `us` to `base`, launch by launch: not the quotient of their medians. Both are not empty.
struct Ratio {
  double middle = 0;  // the median
  double least = 0;
  double most = 0;
};
Ratio ratio_of_launches(const std::vector<double>& us, const std::vector<double>& base);

}  // namespace c10d::bench
