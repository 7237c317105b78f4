// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace c10d::fault {

// Makes MPI go wrong in this process: "exit" ends it when the mpi backend first asks MPI for
// something; "fail:4" lets its fourth duplicate of a communicator fail; "stranger" hides that MPI's
// launcher started it; the name of one of the functions below stops it there as by SIGSTOP;
// anything else does nothing.
void set_mpi_trap(const std::string& trap);

}  // namespace c10d::fault
