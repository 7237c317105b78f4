// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/data_parallel.h"
#include "examples/training/trainer/strategy.h"

namespace nn {
namespace {

using namespace c10d::parallel;

class ReplicaSink final : public GradientSink {
 public:
  explicit ReplicaSink(Replica& replica) : replica_(replica) {}
  float* next(std::size_t parameter) override {
    return reinterpret_cast<float*>(replica_.grad_view(parameter).data());
  }
  void done(std::size_t parameter) override { replica_.mark_ready(parameter); }

 private:
  Replica& replica_;
};

class Replicas final : public WholeModel {
 public:
  Replicas(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : WholeModel(task, group, trace),
        workers_(static_cast<std::size_t>(task.options.ranks)),
        engine_(task.options.ranks, task.model.parameters, task.shards) {}

  Score step(std::span<const std::int64_t> batch, std::uint64_t step, float rate) override {
    engine_.step([&](Replica& replica) { return work(replica, batch, step); });
    before_update_();
    const Traced span(trace_, "optimizer");
    Score score;
    for (const Worker& worker : workers_) score = score + worker.score;
    for (std::size_t i = 0; i < task_.model.parameters.size(); ++i) {
      const auto* const gradient = reinterpret_cast<const float*>(engine_.gradient(i).data());
      weights_.update(i, 0, {gradient, task_.model.parameters[i].count()}, step, rate);
    }
    return score;
  }

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
    weights_.put_into(*worker.net);
  }

  std::int64_t work(Replica& replica, std::span<const std::int64_t> batch, std::uint64_t step) {
    Worker& worker = workers_[replica.index()];
    if (worker.net == nullptr) prepare(worker, replica);
    const Traced span(trace_, "replica " + std::to_string(replica.index()),
                      Trace::replica(replica.index()));
    worker.score = worker.feed->forward(batch, step);
    ReplicaSink sink(replica);
    worker.net->backward(sink);
    return worker.score.rows;
  }

  std::vector<Worker> workers_;
  DataParallel engine_;
};

}  // namespace

std::unique_ptr<Strategy> replicas(const Task& task, c10d::ProcessGroup& group, Trace& trace) {
  return std::make_unique<Replicas>(task, group, trace);
}

}  // namespace nn
