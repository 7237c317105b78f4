// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "examples/training/nn/model.h"

namespace nn {

// Where gradients go. For every parameter, the shards come in order.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Whether it takes Layer::pieces one by one, as if each were a parameter: all shards of the
  // first, then all of the second.
  virtual bool by_piece() const { return false; }
  virtual float* next(std::size_t parameter) = 0;  // to write the next shard's gradient to
  virtual void done(std::size_t parameter) = 0;    // it is written
};

// A model at work on one rank's shards of a batch. The owner says where parameters and gradients
// lie, and may move them between calls. Calls take a range of nodes and work through its layers
// one by one, each over all given shards (lockstep): a layer's gradients are ready as early as
// without shards, and a parameter is read once per step. One thread at a time.
class Net {
 public:
  Net(const Model& model, int shards);  // so many at a time

  std::vector<float*> values;  // per parameter

  // Prepares a shard for so many samples; zero is a shard that gives zeros. What it held before is
  // gone.
  void place(int shard, std::int64_t samples, bool training);
  const Layout& layout(int node, int shard) const;  // of the output of a node, or of kModelInput
  // The output of a node, or the model's input, that lies outside. Valid until backward is over.
  void set_output(int node, int shard, const float* data);
  const float* output(int node, int shard) const;
  // The gradient of the loss by the output of a node.
  void set_diff(int node, int shard, float* data);
  // The same for the output of the node before `first`, after backward_input down to `first`.
  float* diff_of(int node, int shard);

  std::int64_t samples(int shard) const { return states_[shard].samples; }

  void forward(int first, int last, int shard, int shards);
  void backward_input(int first, int last, int shard, int shards);
  void backward_weight(int first, int last, int shard, int shards, GradientSink& sink);
  // Both, layer by layer, over the whole model and all shards. When a gradient is done, its
  // parameter is not read again.
  void backward(GradientSink& sink);

  int shards() const noexcept { return static_cast<int>(states_.size()); }
  const Model& model() const noexcept { return model_; }

 private:
  using Plans = std::vector<std::unique_ptr<Plan>>;
  struct State {
    std::int64_t samples = 0;
    const Plans* plans = nullptr;
    Layout input;
    std::vector<Slot> slots;          // per node
    std::vector<const float*> given;  // per node + 1: outputs that lie outside
    std::vector<float*> diffs;        // per node + 1: of outputs
  };
  void backward_weight(int node, int shard, Pieces pieces, GradientSink& sink);
  const Plans& plans_for(const Layout& input, bool training);
  Slot& slot(int node, int shard);
  void run(int node, int shard, int shards,
           const std::function<void(Plan&, Slots, Pointers)>& call);
  std::span<float* const> values_of(int node) const;

  const Model& model_;
  std::vector<std::vector<int>> consumers_;  // per node: those that read its output
  std::map<std::pair<std::int64_t, bool>, Plans> plans_;
  std::vector<State> states_;
};

}  // namespace nn
