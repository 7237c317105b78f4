// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/nn/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "examples/training/nn/errors.h"

namespace nn {
namespace {

constexpr float kMomentum = 0.9F;
constexpr float kFirstDecay = 0.9F, kSecondDecay = 0.999F, kAdamEpsilon = 1e-8F;
constexpr float kWeightDecay = 0.01F;
constexpr float kStatisticShare = 0.1F;  // of the newest batch in a running statistic

void sgd(float rate, std::span<float> values, const float* gradient, float* velocity) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    velocity[i] = kMomentum * velocity[i] + gradient[i];
    values[i] -= rate * velocity[i];
  }
}

void adamw(float rate, float decay, std::uint64_t step, std::span<float> values,
           const float* gradient, float* first, float* second) {
  const auto steps = static_cast<double>(step);
  const auto first_scale = static_cast<float>(1 / (1 - std::pow(double{kFirstDecay}, steps)));
  const auto second_scale = static_cast<float>(1 / (1 - std::pow(double{kSecondDecay}, steps)));
  const float keep = 1 - rate * decay;
  for (std::size_t i = 0; i < values.size(); ++i) {
    first[i] = kFirstDecay * first[i] + (1 - kFirstDecay) * gradient[i];
    second[i] = kSecondDecay * second[i] + (1 - kSecondDecay) * gradient[i] * gradient[i];
    const float size = std::sqrt(second[i] * second_scale) + kAdamEpsilon;
    values[i] = values[i] * keep - rate * (first[i] * first_scale) / size;
  }
}

}  // namespace

Optimizer::Optimizer(const std::string& name) : adam_(name == "adamw") {
  const std::vector<std::string> known = names();
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw_invalid("no optimizer is named {}; there are {}", name, fmt::join(known, ", "));
}

void Optimizer::update(Rule rule, std::uint64_t step, float rate, std::span<float> values,
                       const float* gradient, std::span<float* const> state) const {
  if (rule == Rule::statistic) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (1 - kStatisticShare) * values[i] + kStatisticShare * gradient[i];
  } else if (adam_) {
    adamw(rate, rule == Rule::weight ? kWeightDecay : 0, step, values, gradient, state[0],
          state[1]);
  } else {
    sgd(rate, values, gradient, state[0]);
  }
}

float rate_at(const std::string& schedule, float rate, std::uint64_t step, std::uint64_t steps) {
  if (schedule != "cosine" || steps == 0) return rate;
  const double done = static_cast<double>(std::min(step, steps) - 1) / static_cast<double>(steps);
  return static_cast<float>(rate * 0.5 * (1 + std::cos(done * 3.14159265358979323846)));
}

}  // namespace nn
