// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/process_group.h"

namespace c10d::fault {

inline constexpr int kReuseRanks = 3;

// In each round a new group does one op after the other until a rank aborts it, in the middle of
// one. A rank whose op failed overwrites its input at once, as a program may: no other rank may
// take that for the data. Returns "<rounds> rounds, <ops> ops were right", or what went wrong.
std::string reuse_after_failures(ProcessGroup& world, int rounds);

}  // namespace c10d::fault
