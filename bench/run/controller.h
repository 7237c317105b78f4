// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/model/options.h"

namespace c10d::bench {

// run and compare: as a rank of a launch, as a rank under somebody else's launcher, or as the
// controller that starts launches. Returns the exit code.
int run_benchmark(const RunOptions& options);

// Starts this program with the arguments `argv`, as `ranks` ranks; returns its exit code.
int launch_self(const std::vector<std::string>& argv, int ranks);

}  // namespace c10d::bench
