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

// "openmpi", "mpich", or nothing when there is no mpirun.
std::string mpirun_flavour();
// What stands before a program that mpirun starts, unbound.
std::vector<std::string> mpirun_command(const std::string& flavour, int ranks);

// What stands between the controller and mpirun: `c10d-bench exec-mpirun RANKS FLAVOUR PROGRAM
// ARGUMENT...` takes the place of a rank in the controller's launch, removes the variables that
// speak of that one rank, and becomes mpirun.
int exec_mpirun(int argc, char** argv);

}  // namespace c10d::bench
