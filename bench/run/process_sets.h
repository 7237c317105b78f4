// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/model/options.h"

namespace c10d::bench {

// The sets of processes that the run needs: one for each of the builds, and in each of them one for
// each MPI and for each PyTorch. The other backends are in one set, that of the first MPI if there
// is one. Throws InvalidArgument when
// the program of a build is not there.
std::vector<ProcessSet> process_sets(const RunOptions& options);

// Launches the sets in turns, each by `c10d-bench run` of its build, and takes their records as
// those of one run. Returns the exit code.
int run_sets(const RunOptions& options, int ranks, std::size_t cases);

}  // namespace c10d::bench
