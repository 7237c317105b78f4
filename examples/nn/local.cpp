// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/init.h"
#include "examples/nn/strategy.h"

namespace nn {
namespace {

using c10d::parallel::divide;
using c10d::parallel::TensorPart;

class Local final : public Strategy {
 public:
  Local(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : task_(task),
        group_(group),
        trace_(trace),
        weights_(task, {0, task.model.parameters.size()}),
        net_(task.model, task.shards),
        gradients_(task.model, {0, task.model.parameters.size()}, task.shards, {0, task.shards}),
        feed_(task, net_, task.shards, {0, task.shards}) {
    for (std::size_t i = 0; i < net_.values.size(); ++i) net_.values[i] = weights_.value(i);
    use_threads(1);
  }

  Score step(std::span<const std::int64_t> batch, std::uint64_t step, float rate) override {
    const int nodes = static_cast<int>(task_.model.nodes.size());
    Score score;
    {
      const Traced span(trace_, "forward");
      feed_.load(batch, step);
      net_.forward(0, nodes, 0, net_.shards());
      for (int shard = 0; shard < net_.shards(); ++shard) score = score + feed_.score(shard);
    }
    {
      const Traced span(trace_, "backward");
      net_.backward(0, nodes, gradients_);
    }
    const Traced span(trace_, "optimizer");
    for (std::size_t i = 0; i < net_.values.size(); ++i) {
      const std::span<float> gradient = gradients_.sum(i);
      divide(gradient, rows_of(task_, batch));
      weights_.update(i, gradient.data(), step, rate);
    }
    gradients_.reset();
    return score;
  }

  std::vector<std::vector<float>> collect() override { return weights_.copy(); }
  std::vector<TensorPart> parts() override { return weights_.parts(); }
  c10d::ProcessGroup& group() override { return group_; }

 private:
  const Task& task_;
  c10d::ProcessGroup& group_;
  Trace& trace_;
  Weights weights_;
  Net net_;
  TreeSink gradients_;
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
