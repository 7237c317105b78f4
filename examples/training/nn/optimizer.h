// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "examples/training/nn/layer.h"

namespace nn {

// SGD with momentum, or AdamW. An update of an element depends on that element alone: a rank that
// holds a slice updates it, to the same bits.
class Optimizer {
 public:
  // Throws std::invalid_argument that lists the names.
  explicit Optimizer(const std::string& name);
  static std::vector<std::string> names() { return {"sgd", "adamw"}; }

  int states() const noexcept { return adam_ ? 2 : 1; }  // floats per element besides the value
  // `step` counts from 1. `state` has states() pointers, each to as many floats as `values`.
  void update(Rule rule, std::uint64_t step, float rate, std::span<float> values,
              const float* gradient, std::span<float* const> state) const;

 private:
  bool adam_;
};

// The learning rate of step `step` of `steps`, both from 1: constant, or along half a cosine to 0.
float rate_at(const std::string& schedule, float rate, std::uint64_t step, std::uint64_t steps);

}  // namespace nn
