// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

namespace c10d::bench {

struct DiffOptions {
  std::string old_file, new_file;    // JSON lines of a run each
  std::optional<double> fail_above;  // 0.1: 10 % slower
};

// Prints what differs between two runs: cells with their interval, and facts of the runs. Returns 1
// when fail_above is given and a cell is slower by more than that, with its interval above 1; else
// 0. Throws InvalidArgument for files that are no runs or have no cell in common.
int print_diff(const DiffOptions& options);

}  // namespace c10d::bench
