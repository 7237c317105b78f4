// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "c10d/launch.h"

namespace c10d::bench {

// An MPI and what starts its ranks.
struct Mpi {
  std::string flavour{};  // "openmpi", "mpich": whose ABI it has; empty: there is no mpirun
  std::string mpirun = "mpirun";
  std::string library{};  // loaded before the one that c10d's module names; empty: only that one
};

// The MPI that -B names behind an @: "openmpi", "mpich", or the path of a libmpi.so or of the
// folder that its MPI was installed in. Nothing: whichever mpirun is on PATH, if one is. Throws
// InvalidArgument when what is named is not there.
Mpi find_mpi(const std::string& which);

// Whether one of these columns needs it: only MPI backends need a launcher, and mpirun is theirs.
bool needs_mpirun(const std::vector<std::string>& columns);

// Starts ranks of this program, through mpirun if the MPI has one. The program's arguments follow
// at the end of the command.
LaunchOptions start_self(const Mpi& mpi, int ranks);

// What stands before a program that mpirun starts, unbound.
std::vector<std::string> mpirun_command(const Mpi& mpi, int ranks);

// What stands between the controller and mpirun: `c10d-bench exec-mpirun MPIRUN ARGUMENT...` takes
// the place of a rank in the controller's launch, removes the variables that speak of that one
// rank, and becomes mpirun.
int exec_mpirun(int argc, char** argv);

// Those variables.
const std::vector<const char*>& variables_of_a_rank();

}  // namespace c10d::bench
