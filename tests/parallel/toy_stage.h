// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "c10d/parallel/pipeline.h"

namespace c10d::parallel {

// A model cut into stages: h = the sum of the inputs, y = w * h for each column; the output to the
// k-th destination is (k + 1) y. The last stage pulls y towards 1. Small, but its sums of floats
// depend on their order, and its shapes on step and micro-batch.
class ToyStage : public Stage {
 public:
  ToyStage(int stage, const std::vector<Skip>& edges, std::size_t columns)
      : weight_(columns), gradient_(columns) {
    for (const Skip& edge : edges) {
      inputs_ += edge.to == stage;
      outputs_ += edge.from == stage;
    }
    for (std::size_t i = 0; i < columns; ++i)
      weight_[i] =
          0.9f + 0.01f * static_cast<float>((i * 7 + static_cast<std::size_t>(stage)) % 13);
  }

  std::vector<Activation> forward(int i, std::span<const Activation> inputs) override {
    if (before_forward) before_forward(i);
    Activation& h = saved_[i] = inputs.empty() ? data(i) : sum(inputs, false);
    std::vector<Activation> outputs;
    for (std::size_t k = 0; k < std::max<std::size_t>(outputs_, 1); ++k)
      outputs.push_back(scaled(h, static_cast<float>(k + 1)));
    if (outputs_ > 0) return outputs;
    float* const y = values(outputs[0]);
    for (std::size_t j = 0; j < outputs[0].data.count; ++j) y[j] -= 1;
    loss_gradient_[i] = outputs[0];
    return {};
  }

  std::vector<Activation> backward_input(int i, std::span<const Activation> gradients) override {
    if (before_input) before_input(i);
    Activation g = gradients.empty() ? loss_gradient_[i] : sum(gradients, true);
    weight_terms_[i] = g;
    std::vector<Activation> results;
    for (std::size_t k = 0; k < inputs_; ++k) results.push_back(scaled(g, 1));
    if (alter_gradients) alter_gradients(results);
    return results;
  }

  void backward_weight(int i) override {
    weight_order.push_back(i);
    const float* g = values(weight_terms_.at(i));
    const float* h = values(saved_.at(i));
    for (std::size_t row = 0; row < saved_.at(i).data.count / weight_.size(); ++row)
      for (float& sum : gradient_) sum += *g++ * *h++;
    saved_.erase(i);
    weight_terms_.erase(i);
  }

  void reduce_grad() override {
    ++reduced;
    if (on_reduce) on_reduce();
  }

  View tied_gradient(std::string_view) override { return std::span(gradient_); }

  void learn() {
    for (std::size_t j = 0; j < weight_.size(); ++j) {
      weight_[j] -= 0.001f * gradient_[j];
      gradient_[j] = 0;
    }
    ++step_;
  }

  const std::vector<float>& weight() const { return weight_; }
  std::vector<float>& gradient() { return gradient_; }

  std::function<void(int)> before_forward, before_input;
  std::function<void()> on_reduce;
  std::function<void(std::vector<Activation>&)> alter_gradients;
  std::vector<int> weight_order;
  int reduced = 0;

 private:
  static float* values(const Activation& of) { return static_cast<float*>(of.data.data); }

  Activation data(int i) const {
    const std::int64_t rows = 1 + (i + step_) % 3;
    Activation x = make_activation({rows, static_cast<std::int64_t>(weight_.size())});
    for (std::size_t j = 0; j < x.data.count; ++j)
      values(x)[j] =
          0.5f + static_cast<float>((j * 31 + static_cast<std::size_t>(i * 17 + step_)) % 101) / 97;
    return x;
  }

  static Activation sum(std::span<const Activation> parts, bool growing) {
    Activation total = make_activation(parts[0].shape);
    float* const to = values(total);
    std::fill_n(to, total.data.count, 0.f);
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const float factor = growing ? static_cast<float>(k + 1) : 1;
      const float* const from = values(parts[k]);
      for (std::size_t j = 0; j < total.data.count; ++j) to[j] += factor * from[j];
    }
    return total;
  }

  Activation scaled(const Activation& of, float factor) const {
    Activation result = make_activation(of.shape);
    float* to = values(result);
    const float* from = values(of);
    for (std::size_t row = 0; row < of.data.count / weight_.size(); ++row)
      for (const float w : weight_) *to++ = factor * w * *from++;
    return result;
  }

  std::size_t inputs_ = 0, outputs_ = 0;
  std::vector<float> weight_, gradient_;
  int step_ = 0;
  std::map<int, Activation> saved_, loss_gradient_, weight_terms_;
};

}  // namespace c10d::parallel
