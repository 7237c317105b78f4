// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace c10d::bench {

// Measures every algorithm of native at a few sizes and writes what rank 0 of later groups like
// this one loads. Unless a launcher has started it, starts itself with the arguments `argv`, as
// `ranks` ranks (0: two). Returns the exit code.
int run_tune(int ranks, const std::vector<std::string>& argv);

}  // namespace c10d::bench
