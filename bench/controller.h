// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bench/options.h"

namespace c10d::bench {

// run and compare: as a rank of a launch, as a rank under somebody else's launcher, or as the
// controller that starts launches. Returns the exit code.
int run_benchmark(const Options& options);

// Starts this program once more, with the same arguments, as `ranks` ranks; returns its exit code.
int launch_self(const Options& options, int ranks);

// What stands between the controller and mpirun: `c10d-bench exec-mpirun RANKS FLAVOUR PROGRAM
// ARGUMENT...` takes the place of a rank in the controller's launch, removes the variables that
// speak of that one rank, and becomes mpirun.
int exec_mpirun(int argc, char** argv);

}  // namespace c10d::bench
