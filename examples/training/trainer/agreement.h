// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/process_group.h"
#include "examples/training/trainer/job.h"

namespace nn {

// Throws, and breaks the group first: ranks that still wait in it learn the same cause.
[[noreturn]] void give_up(c10d::ProcessGroup& group, const std::string& why);

// All that follow are collective.

// Throws the first problem that a rank has, on all ranks. An empty text is no problem.
void throw_first(c10d::ProcessGroup& group, const std::string& problem);

// Throws, unless all ranks train the same on the same samples: with another number of steps one
// rank would wait for the others, with another rate the ranks would drift apart.
void check_task(c10d::ProcessGroup& group, const Task& task);

}  // namespace nn
