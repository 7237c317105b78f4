// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/init.h"
#include "examples/training/trainer/strategy.h"

namespace nn {
namespace {

using c10d::View;
using namespace c10d::parallel;

// Adds up the shards along the tree and updates the weights from the mean, piece by piece, each
// while it is in the cache: there is no memory for the gradients of the whole model.
class UpdatingSink final : public GradientSink {
 public:
  UpdatingSink(const Task& task, Weights& weights) : weights_(weights) {
    for (const Node& node : task.model.nodes)
      for (std::size_t i = 0; i < node.layer.parameters.size(); ++i) {
        const std::size_t count = task.model.parameters[node.first_parameter + i].count();
        const auto pieces = static_cast<std::size_t>(node.layer.pieces);
        pieces_.push_back({{task.shards, ShardRange{0, task.shards}, count / pieces}, count});
      }
  }

  void begin(double rows, std::uint64_t step, float rate) {
    rows_ = rows;
    step_ = step;
    rate_ = rate;
  }

  bool by_piece() const override { return true; }
  float* next(std::size_t parameter) override {
    return static_cast<float*>(pieces_[parameter].shards.next().data);
  }
  void done(std::size_t parameter) override {
    Piece& piece = pieces_[parameter];
    piece.shards.done();
    if (!piece.shards.complete()) return;
    const View mean = piece.shards.sum();
    divide(mean, rows_);
    weights_.update(parameter, piece.first, {static_cast<const float*>(mean.data), mean.count},
                    step_, rate_);
    piece.shards.reset();
    piece.first = (piece.first + mean.count) % piece.elements;
  }

 private:
  struct Piece {
    ShardAccumulator shards;
    std::size_t elements;   // of the parameter
    std::size_t first = 0;  // of the piece
  };
  Weights& weights_;
  std::vector<Piece> pieces_;  // the current one, by parameter
  double rows_ = 1;
  std::uint64_t step_ = 0;
  float rate_ = 0;
};

class Local final : public WholeModel {
 public:
  Local(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : WholeModel(task, group, trace),
        net_(task.model, task.shards),
        updates_(task, weights_),
        feed_(task, net_, task.shards, {0, task.shards}) {
    weights_.put_into(net_);
    use_threads(1);
  }

  Score step(std::span<const std::int64_t> batch, std::uint64_t step, float rate) override {
    const Score score = forward(feed_, batch, step);
    const Traced span(trace_, "backward, optimizer");
    before_update_();
    updates_.begin(rows_of(task_, batch), step, rate);
    net_.backward(updates_);
    return score;
  }

 private:
  Net net_;
  UpdatingSink updates_;
  Feed feed_;
};

}  // namespace

std::unique_ptr<Strategy> local(const Task& task, c10d::ProcessGroup& group, Trace& trace) {
  return std::make_unique<Local>(task, group, trace);
}

c10d::ProcessGroup alone() {
  return c10d::init_process_group(
      {.backend = "native", .store = c10d::make_hash_store(), .rank = 0, .size = 1});
}

}  // namespace nn
