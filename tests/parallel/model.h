// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "c10d/parallel/parameters.h"
#include "c10d/parallel/philox.h"
#include "c10d/parallel/reproducible.h"

// A model small enough to be checked by hand: each parameter is a linear regression of its own.
namespace c10d::parallel {

using Weights = std::vector<std::vector<float>>;  // by parameter

inline std::vector<ParamSpec> model_params() {
  return {{.name = "first.weight", .shape = {6, 5}},
          {.name = "first.bias", .shape = {6}},
          {.name = "scale", .shape = {}},
          {.name = "last.weight", .shape = {40, 3}},
          {.name = "last.bias", .shape = {3}}};
}

inline Weights model_weights() {
  Weights weights;
  for (const ParamSpec& spec : model_params()) {
    PhiloxStream random(1, 0, weights.size(), 0);
    std::vector<float> values(spec.count());
    for (float& value : values) value = random.uniform() - 0.5f;
    weights.push_back(values);
  }
  return weights;
}

// Samples of each step: they do not divide by shards or ranks, and one step is nearly empty.
inline std::int64_t batch_of(std::int64_t step) { return step % 7 == 5 ? 3 : 29 + step % 4; }

// The sum over `samples` of the gradients of one parameter, in the order of the samples.
inline void gradient(std::span<const float> weights, std::size_t param, std::int64_t step,
                     SampleRange samples, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0f);
  std::vector<float> input(weights.size());
  for (std::int64_t sample = samples.first; sample < samples.last; ++sample) {
    PhiloxStream random(2, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(sample),
                        static_cast<std::uint32_t>(param));
    float error = -1;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      input[i] = random.uniform() - 0.5f;
      error += weights[i] * input[i];
    }
    for (std::size_t i = 0; i < weights.size(); ++i) out[i] += error * input[i];
  }
}

inline void descend(std::span<float> weights, std::span<const float> mean) {
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.2f * mean[i];
}

// One process, and the tree as its definition has it.
inline std::vector<float> tree_gradient(const Weights& weights, std::size_t param,
                                        std::int64_t step, int shards, int first, int last) {
  if (last - first == 1) {
    std::vector<float> out(weights[param].size());
    gradient(weights[param], param, step, samples_of(batch_of(step), shards, first), out);
    return out;
  }
  const int mid = (first + last) / 2;
  auto left = tree_gradient(weights, param, step, shards, first, mid);
  const auto right = tree_gradient(weights, param, step, shards, mid, last);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

inline Weights trained_alone(int shards, std::int64_t steps) {
  Weights weights = model_weights();
  for (std::int64_t step = 0; step < steps; ++step)
    for (std::size_t param = 0; param < weights.size(); ++param) {
      auto mean = tree_gradient(weights, param, step, shards, 0, shards);
      for (float& value : mean) value /= static_cast<float>(batch_of(step));
      descend(weights[param], mean);
    }
  return weights;
}

// The largest difference in a parameter, as a part of its largest weight; over all parameters.
inline double distance(const Weights& some, const Weights& others) {
  double worst = 0;
  for (std::size_t param = 0; param < some.size(); ++param) {
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < some[param].size(); ++i) {
      const double other = others[param].at(i);
      difference = std::max(difference, std::fabs(some[param][i] - other));
      largest = std::max(largest, std::fabs(other));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

inline std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace c10d::parallel
