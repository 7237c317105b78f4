// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "examples/training/nn/layer.h"
#include "tests/nn/naive.h"

namespace nn {

using naive::Vector;
using naive::Vectors;

inline constexpr double kBound = 2e-5;  // of the largest value of the same tensor

Buffer to_floats(const Vector& values);
double largest(const Vector& values);
void expect_near(const Vector& found, const Vector& expected, const std::string& what);

// What a layer makes of one batch, forward and backward; all row by row.
struct LayerRun {
  Vector output;
  Vector diff_input;  // empty: the gradients of its inputs are that of its output
  Vectors gradients;  // by parameter
};
LayerRun run_layer(const Layer& layer, const Layout& from, const Vector& input,
                   const Vectors& parameters, const Vector& diff_output);
// The output of the layer as evaluation uses it.
Vector evaluate_layer(const Layer& layer, const Layout& from, const Vector& input,
                      const Vectors& parameters);

}  // namespace nn
