// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "c10d/parallel/pipeline.h"
#include "c10d/parallel/reproducible.h"
#include "examples/tutorial/mlp.h"

namespace tutorial {

// A layer of the model as a stage of a pipeline: forward_backward() cut at the borders of layers.
// Part i of a batch is micro-batch i.
class LayerStage : public c10d::parallel::Stage {
 public:
  using Activations = std::vector<c10d::parallel::Activation>;
  using Inputs = std::span<const c10d::parallel::Activation>;

  // Layer group.rank(), for batches in `parts`. `weights` are those of all layers; the stage reads
  // its own in every step. Throws unless there is a rank for each layer.
  LayerStage(const c10d::ProcessGroup& group, const std::vector<std::vector<float>>& weights,
             const Digits& digits, int parts)
      : l_(checked(group)),
        weights_(weights[l_]),
        digits_(digits),
        parts_(parts),
        sum_(parts, {0, parts}, kModel[l_].size()) {}

  std::size_t layer() const { return l_; }
  // Before Pipeline::step(): the batch.
  void begin(Samples batch) {
    batch_ = batch;
    sum_.reset();
  }
  // After it: the mean gradient over the batch.
  std::span<const float> gradient() {
    const c10d::View sum = sum_.sum();
    c10d::parallel::divide(sum, static_cast<double>(batch_.size()));
    return {static_cast<const float*>(sum.data), sum.count};
  }

  Activations forward(int i, Inputs inputs) override {
    const Samples samples = parts_of(batch_, {i, i + 1}, parts_)[0];
    x_[i] = l_ == 0 ? digits_.take(samples) : matrix(kModel[l_].inputs, inputs[0]);
    Matrix y = kModel[l_].forward(weights_, x_[i]);
    if (l_ + 1 < kModel.size()) return {activation(y)};
    dy_[i] = digits_.loss_gradient(samples, y);
    return {};
  }
  Activations backward_input(int i, Inputs gradients) override {
    if (l_ + 1 < kModel.size()) dy_[i] = matrix(kModel[l_].outputs, gradients[0]);
    if (l_ == 0) return {};
    return {activation(kModel[l_].backward_input(weights_, x_[i], dy_[i]))};
  }
  void backward_weight(int i) override {
    const c10d::View next = sum_.next();
    kModel[l_].backward_weight(x_[i], dy_[i], {static_cast<float*>(next.data), next.count});
    sum_.done();
  }

 private:
  static std::size_t checked(const c10d::ProcessGroup& group) {
    if (static_cast<std::size_t>(group.size()) == kModel.size())
      return static_cast<std::size_t>(group.rank());
    throw std::invalid_argument("the model has 2 layers: start 2 ranks, not " +
                                std::to_string(group.size()));
  }
  static Matrix matrix(std::size_t columns, const c10d::parallel::Activation& from) {
    const float* data = static_cast<const float*>(from.data.data);
    return {columns, {data, data + from.data.count}};
  }
  static c10d::parallel::Activation activation(const Matrix& from) {
    auto to = c10d::parallel::make_activation(
        {static_cast<std::int64_t>(from.rows()), static_cast<std::int64_t>(from.columns)});
    std::copy(from.data.begin(), from.data.end(), static_cast<float*>(to.data.data));
    return to;
  }

  std::size_t l_;
  const std::vector<float>& weights_;
  const Digits& digits_;
  int parts_;
  Samples batch_;
  std::map<int, Matrix> x_, dy_;          // by micro-batch
  c10d::parallel::ShardAccumulator sum_;  // of the gradients of the micro-batches
};

}  // namespace tutorial
