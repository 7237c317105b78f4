// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "tools/run/options.h"

namespace c10d { inline namespace v0 {

// The line that starts the same ranks with srun, mpirun or torchrun, quoted for a shell.
std::string equivalent_line(const RunOptions& options);

// Becomes mpirun with the same ranks and program. Returns only by throwing std::runtime_error.
[[noreturn]] void become_mpirun(const RunOptions& options);

}}  // namespace c10d::v0
