// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "c10d/parallel/ddp.h"
#include "c10d/process_group.h"
#include "examples/training/trainer/job.h"
#include "examples/training/trainer/trace.h"

namespace nn {

// All parameters, whole, on every rank: where the strategy holds them, or copies.
struct WholeValues {
  explicit WholeValues(std::vector<const float*> held) : at(std::move(held)) {}
  WholeValues(std::vector<std::vector<float>> made) : copies(std::move(made)) {
    for (const std::vector<float>& values : copies) at.push_back(values.data());
  }
  WholeValues(WholeValues&&) = default;
  std::vector<std::vector<float>> copies;
  std::vector<const float*> at;  // by parameter
};

// How a step is spread over workers. The trainer knows nothing else.
class Strategy {
 public:
  Strategy(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : task_(task), group_(group), trace_(trace) {}
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  // Collective. Forward, backward, reduction and update on a global batch, the same on every rank.
  // `step` counts from 1. The score of what this rank computed.
  virtual Score step(std::span<const std::int64_t> batch, std::uint64_t step, float rate) = 0;
  // Called once in every step, before it changes anything that parts() names.
  void before_update(std::function<void()> callback) { before_update_ = std::move(callback); }
  // Collective. For evaluation and the digest; valid until the next step.
  virtual WholeValues collect() = 0;
  // What this rank holds of parameters and optimizer state, to save and to load.
  virtual std::vector<c10d::parallel::TensorPart> parts() = 0;
  virtual bool holds_all() const { return false; }  // whether parts() is that on every rank
  virtual void loaded() {}                          // parts() was overwritten
  c10d::ProcessGroup& group() const { return group_; }
  // How long this rank has waited for others so far: communication that nothing hid.
  std::chrono::duration<double> waited() const { return waited_; }

 protected:
  const Task& task_;
  c10d::ProcessGroup& group_;
  Trace& trace_;
  std::chrono::duration<double> waited_{};
  std::function<void()> before_update_ = [] {};
};

// A strategy with all parameters and their optimizer state on every rank.
class WholeModel : public Strategy {
 public:
  WholeModel(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : Strategy(task, group, trace), weights_(task, {0, task.model.parameters.size()}) {}
  WholeValues collect() override { return WholeValues(weights_.values()); }
  std::vector<c10d::parallel::TensorPart> parts() override { return weights_.parts(); }

 protected:
  Score forward(Feed& feed, std::span<const std::int64_t> batch, std::uint64_t step) {
    const Traced span(trace_, "forward");
    return feed.forward(batch, step);
  }

  Weights weights_;
};

// One process, one thread. The group is a group of one, for the checkpoint.
std::unique_ptr<Strategy> local(const Task& task, c10d::ProcessGroup& group, Trace& trace);
// The model on every rank; gradients are reduced while backward runs.
std::unique_ptr<Strategy> replicated(const Task& task, c10d::ProcessGroup& group, Trace& trace);
// One process, a thread per replica.
std::unique_ptr<Strategy> replicas(const Task& task, c10d::ProcessGroup& group, Trace& trace);
// Parameters, gradients and optimizer state sharded over the ranks.
std::unique_ptr<Strategy> sharded(const Task& task, c10d::ProcessGroup& group, Trace& trace);
// Consecutive layers on every rank.
std::unique_ptr<Strategy> staged(const Task& task, c10d::ProcessGroup& group, Trace& trace);

c10d::parallel::ReducerOptions reducer_options(const Task& task);

// What rank 0 of `size` holds under each strategy, as --plan prints it.
std::string memory_plan(const Task& task, int size);

// A group of this process alone, wherever it was started.
c10d::ProcessGroup alone();

}  // namespace nn
