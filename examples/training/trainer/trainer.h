// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "examples/training/trainer/strategy.h"

namespace nn {

using StrategyMaker = std::unique_ptr<Strategy>(const Task&, c10d::ProcessGroup&, Trace&);

// Collective. Trains as the options say, on `workers` ranks or replicas, with the strategy that
// `make` makes: resumes from the newest checkpoint, runs epochs, tests after each, saves, and ends
// with the line "weights <digest>" on rank 0. Throws unless all ranks hold the same weights and
// compute with the same library.
void train(const Options& options, c10d::ProcessGroup& group, int workers, StrategyMaker* make);

// 16 hex digits over names and bytes of all parameters, in the order of their names.
std::string digest_of(const Model& model, std::span<const float* const> values);

}  // namespace nn
