// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/data_parallel.h"
#include "examples/training/trainer/strategy.h"

namespace nn {
namespace {

using c10d::parallel::DataParallel;
using c10d::parallel::Replica;
using c10d::parallel::TensorPart;

class ReplicaSink final : public GradientSink {
 public:
  explicit ReplicaSink(Replica& replica) : replica_(replica) {}
  float* next(std::size_t parameter) override {
    return reinterpret_cast<float*>(replica_.grad_view(parameter).data());
  }
  void done(std::size_t parameter) override { replica_.ready(parameter); }

 private:
  Replica& replica_;
};

class Replicas final : public Strategy {
 public:
  Replicas(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : task_(task),
        group_(group),
        trace_(trace),
        weights_(task, {0, task.model.parameters.size()}),
        workers_(static_cast<std::size_t>(task.options.ranks)),
        engine_(task.options.ranks, task.model.parameters, task.shards) {}

  Score step(std::span<const std::int64_t> batch, std::uint64_t step, float rate) override {
    engine_.step([&](Replica& replica) { return work(replica, batch, step); });
    before_update_();
    const Traced span(trace_, "optimizer");
    Score score;
    for (const Worker& worker : workers_) score = score + worker.score;
    for (std::size_t i = 0; i < task_.model.parameters.size(); ++i)
      weights_.update(i, reinterpret_cast<const float*>(engine_.gradient(i).data()), step, rate);
    return score;
  }

  WholeValues collect() override { return WholeValues(weights_.values()); }
  std::vector<TensorPart> parts() override { return weights_.parts(); }
  c10d::ProcessGroup& group() override { return group_; }

 private:
  struct Worker {
    std::unique_ptr<Net> net;
    std::unique_ptr<Feed> feed;
    Score score;
  };

  // Replicas read the same weights; all else is their own, made in their thread.
  void prepare(Worker& worker, const Replica& replica) {
    use_threads(1);
    worker.net = std::make_unique<Net>(task_.model, replica.shards().count());
    worker.feed = std::make_unique<Feed>(task_, *worker.net, task_.shards, replica.shards());
    for (std::size_t i = 0; i < worker.net->values.size(); ++i)
      worker.net->values[i] = weights_.value(i);
  }

  std::int64_t work(Replica& replica, std::span<const std::int64_t> batch, std::uint64_t step) {
    Worker& worker = workers_[replica.index()];
    if (worker.net == nullptr) prepare(worker, replica);
    const Traced span(trace_, "replica " + std::to_string(replica.index()),
                      Trace::replica(replica.index()));
    const int nodes = static_cast<int>(task_.model.nodes.size());
    worker.score = {};
    worker.feed->load(batch, step);
    worker.net->forward(0, nodes, 0, worker.net->shards());
    for (int shard = 0; shard < worker.net->shards(); ++shard)
      worker.score = worker.score + worker.feed->score(shard);
    ReplicaSink sink(replica);
    worker.net->backward(0, nodes, sink);
    return worker.score.rows;
  }

  const Task& task_;
  c10d::ProcessGroup& group_;
  Trace& trace_;
  Weights weights_;
  std::vector<Worker> workers_;
  DataParallel engine_;
};

}  // namespace

std::unique_ptr<Strategy> replicas(const Task& task, c10d::ProcessGroup& group, Trace& trace) {
  return std::make_unique<Replicas>(task, group, trace);
}

}  // namespace nn
