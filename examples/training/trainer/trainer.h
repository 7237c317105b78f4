// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "examples/training/trainer/strategy.h"

namespace nn {

// Collective. Trains as task.options say: goes on from the newest checkpoint, runs epochs, tests
// after each, saves, and ends with the line "weights <digest>" on rank 0. Throws unless all ranks
// hold the same weights and compute with the same library.
void train(const Task& task, Strategy& strategy, Trace& trace);

// 16 hex digits over names and bytes of all parameters, in the order of their names.
std::string digest_of(const Model& model, std::span<const float* const> values);

// Becomes c10d-run, which prints what to type on each host of options.print_commands. Returns only
// by throwing std::system_error.
[[noreturn]] void become_print_commands(const Options& options);

}  // namespace nn
