// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/process_group.h"

namespace c10d::hosts {

// Runs each op that goes in parts, or moves blocks beside others, with several MiB and another
// value in each place, blocking and async. Throws std::runtime_error where a result is wrong.
void check_large_ops(const ProcessGroup& group);

}  // namespace c10d::hosts
