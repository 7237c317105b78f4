// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "c10d/parallel/checkpoint.h"
#include "c10d/parallel/reproducible.h"
#include "examples/training/nn/data.h"
#include "examples/training/nn/model.h"
#include "examples/training/nn/net.h"
#include "examples/training/nn/optimizer.h"
#include "examples/training/trainer/options.h"

namespace nn {

// What all strategies share: what is trained, on what, and how.
struct Task {
  // `workers`: the number of ranks or replicas.
  Task(const Options& options, int workers);

  Options options;
  Data data;
  Model model;
  Optimizer optimizer;
  std::int64_t batch_size;  // over all workers
  int shards;               // of a batch
  std::int64_t steps_per_epoch() const;
  std::uint64_t steps() const;
};

// Parameters [first, last) of the model, whole, with their optimizer state.
class Weights {
 public:
  Weights(const Task& task, Model::Range range);
  float* value(std::size_t parameter) const { return values_[parameter - range_.first].data(); }
  void put_into(Net& net) const;  // which computes with them from then on
  // Applies a gradient that is already a mean, of the parameter's elements from `first` on.
  void update(std::size_t parameter, std::size_t first, std::span<const float> gradient,
              std::uint64_t step, float rate);
  std::vector<c10d::parallel::TensorPart> parts();
  std::vector<const float*> values() const;
  Model::Range range() const noexcept { return range_; }

 private:
  const Task& task_;
  Model::Range range_;
  std::vector<Buffer> values_;
  std::vector<std::vector<Buffer>> states_;  // [parameter][state]
};

// The name of a parameter's optimizer state in a checkpoint.
std::string state_name(const std::string& parameter, int state);

// Brings the own shards of a batch into a net, and its output to the loss.
class Feed {
 public:
  Feed(const Task& task, Net& net, int shards, c10d::parallel::ShardRange owned);
  // Shard `shard` of the batch of step `step`: 0 is the first that the net owns.
  void load(std::span<const std::int64_t> batch, int shard, std::uint64_t step);
  void load(std::span<const std::int64_t> batch, std::uint64_t step);  // all own shards
  // The loss of a shard; tells the net its gradient.
  Score score(int shard);
  // Of all own shards, after a pass through the whole model.
  Score forward(std::span<const std::int64_t> batch, std::uint64_t step);

 private:
  struct Shard {
    std::vector<float> values, diff;
    std::vector<std::int32_t> labels;
  };
  const Task& task_;
  Net& net_;
  int total_;
  c10d::parallel::ShardRange owned_;
  std::vector<Shard> shards_;
};

// Rows of labels in a batch: the divisor of its gradients.
double rows_of(const Task& task, std::span<const std::int64_t> batch);

Score operator+(Score a, const Score& b);

}  // namespace nn
