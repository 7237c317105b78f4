// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "c10d/parallel/ddp.h"
#include "examples/nn/strategy.h"

namespace nn {
namespace {

using c10d::parallel::Bucket;
using c10d::parallel::ReduceMode;
using c10d::parallel::Reducer;
using c10d::parallel::TensorPart;

// Gradients are written into the reducer's buckets, which leave as soon as they are full.
class BucketSink final : public GradientSink {
 public:
  BucketSink(Reducer& reducer, Trace& trace, std::size_t parameters) : reducer_(reducer) {
    if (!trace.enabled()) return;
    times_ = std::make_shared<Times>();
    times_->ready.resize(parameters);
    reducer.on_bucket_done(
        [times = times_, &trace](const Bucket& bucket) { times->record(trace, bucket); });
  }
  float* next(std::size_t parameter) override {
    return reinterpret_cast<float*>(reducer_.grad_view(parameter).data());
  }
  void done(std::size_t parameter) override {
    if (times_) times_->ready[parameter] = Trace::Clock::now();
    reducer_.ready(parameter);
  }

 private:
  // The reducer's thread may still write here when the sink is gone.
  struct Times {
    std::vector<Trace::Clock::time_point> ready;  // per parameter
    Trace::Clock::time_point begin{};

    // On the wire from its last gradient, or the end of the bucket before, to its mean.
    void record(Trace& trace, const Bucket& bucket) {
      for (const auto& param : bucket.params) begin = std::max(begin, ready[param.index]);
      const Trace::Clock::time_point end = Trace::Clock::now();
      trace.add(Trace::Track::communication, "bucket " + std::to_string(bucket.index), begin, end);
      begin = end;
    }
  };

  Reducer& reducer_;
  std::shared_ptr<Times> times_;  // null: no trace
};

class Replicated final : public Strategy {
 public:
  Replicated(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : task_(task),
        group_(group),
        trace_(trace),
        owned_(c10d::parallel::shards_of(task.shards, group.rank(), group.size())),
        weights_(task, {0, task.model.parameters.size()}),
        net_(task.model, owned_.count()),
        feed_(task, net_, task.shards, owned_),
        reducer_(group, task.model.parameters, reducer_options(task)),
        gradients_(reducer_, trace, task.model.parameters.size()) {
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
    reducer_.begin({.samples = score.rows});
    if (score.rows > 0) {
      const Traced span(trace_, "backward");
      net_.backward(0, nodes, gradients_);
    }
    std::chrono::duration<double> updating{};
    {
      Traced span(trace_, "wait for gradients");
      span.add_to(waited_);
      reducer_.finish([&](const Bucket& bucket) {
        Traced update(trace_, "optimizer");
        update.add_to(updating);
        for (const auto& param : bucket.params)
          weights_.update(param.index,
                          static_cast<const float*>(bucket.gradient.data) + param.offset, step,
                          rate);
      });
    }
    waited_ -= updating;
    return score;
  }

  std::vector<std::vector<float>> collect() override { return weights_.copy(); }
  std::vector<TensorPart> parts() override { return weights_.parts(); }
  bool holds_all() const override { return true; }
  c10d::ProcessGroup& group() override { return group_; }
  std::chrono::duration<double> waited() const override { return waited_; }

 private:
  const Task& task_;
  c10d::ProcessGroup& group_;
  Trace& trace_;
  c10d::parallel::ShardRange owned_;
  Weights weights_;
  Net net_;
  Feed feed_;
  Reducer reducer_;
  BucketSink gradients_;
  std::chrono::duration<double> waited_{};
};

}  // namespace

c10d::parallel::ReducerOptions reducer_options(const Task& task) {
  return {.mode = task.options.reproducible ? ReduceMode::reproducible : ReduceMode::fast,
          .shards = task.shards};
}

std::unique_ptr<Strategy> replicated(const Task& task, c10d::ProcessGroup& group, Trace& trace) {
  return std::make_unique<Replicated>(task, group, trace);
}

}  // namespace nn
