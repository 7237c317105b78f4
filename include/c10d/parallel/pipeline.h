// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/parallel/schedule.h"
#include "c10d/process_group.h"
#include "c10d/tensor.h"

namespace c10d { inline namespace v0 { namespace parallel {

inline constexpr std::size_t kMaxActivationDims = 8;

// What travels between stages: an activation, or the gradient of one. CPU memory.
struct Activation {
  std::vector<std::int64_t> shape;  // its product is data.count
  Tensor data;
  std::shared_ptr<void> owner;  // keeps `data` alive; null: the stage does, until step() returns
};

// Memory of its own, not initialised. Throws InvalidArgument for a shape that makes no sense.
C10D_API Activation make_activation(std::vector<std::int64_t> shape, DType dtype = DType::f32);

// A part of the model, written by the user. step() calls it in its own thread, in the order of the
// schedule. Per micro-batch: forward, backward_input, backward_weight. What a callback throws ends
// the step on every rank.
//
// backward_weight comes in micro-batch order, 0, 1, ..., whatever the schedule: gradients that are
// added to one buffer, or fed to a tree over the micro-batches as its leaves, have the same bits
// under every schedule and for one process that runs the micro-batches one after the other.
// backward_input need not be in order.
class C10D_API Stage {
 public:
  virtual ~Stage();

  // Inputs: from the stage before, then those of skips, by their stage; none for stage 0, which
  // takes the data of the micro-batch itself. Returns the outputs: for the stage after, then those
  // of skips, by their stage; none from the last stage. Keep (a copy of) an input to use it later;
  // what was returned must not change until backward_input of this micro-batch.
  virtual std::vector<Activation> forward(int micro_batch, std::span<const Activation> inputs) = 0;
  // One gradient per output, in that order and with its shape. Returns one per input, likewise.
  virtual std::vector<Activation> backward_input(int micro_batch,
                                                 std::span<const Activation> gradients) = 0;
  // Adds to the gradients of the parameters.
  virtual void backward_weight(int micro_batch) = 0;

  // Once per step, after the last backward_weight of the stage: where the schedule says
  // REDUCE_GRAD, else after the schedule. Here data parallelism reduces, over a group of its own.
  virtual void reduce_grad() {}
  // Where the schedule says so.
  virtual void unshard() {}
  virtual void reshard() {}

  // The gradient of the tied weight of that name, in memory of this stage alone; asked for after
  // reduce_grad. Throws InvalidArgument unless overridden.
  virtual Tensor tied_gradient(std::string_view name);
};

// A parameter that several stages hold. After reduce_grad of all stages its gradients are added in
// the order of `stages` and every holder gets the sum.
struct TiedWeight {
  std::string name;
  std::vector<int> stages;  // ascending
};

struct PipelineOptions {
  Schedule schedule{};  // with or without sends and receives
  std::vector<Skip> skips{};
  std::vector<TiedWeight> tied{};
  std::size_t activation_limit = std::size_t{1} << 30;  // bytes of one that may arrive
  std::optional<int> most_activations{};                // of the schedule: see validate()
  // Around every action, in the thread of step(): what a trace is made of. Must not throw.
  std::function<void(const Action&)> on_begin{};
  std::function<void(const Action&)> on_end{};
};

// Executes a schedule. Receives are posted ahead, as peers send; messages are found by stage and
// micro-batch, so no order of sends can block. Shapes may differ between steps and micro-batches.
//
// The group is the pipeline's while the constructor or step() runs: callbacks communicate over
// other groups (new_group). Several pipelines may share a group and stages, one at a time: one to
// train, one to evaluate with forward_only(). Not thread-safe.
class C10D_API Pipeline {
 public:
  // Collective. `group`, one rank per row of the schedule, and the stages must outlive it; `stages`
  // are those that the schedule places on this rank. Throws InvalidArgument on the rank whose
  // arguments make no sense, and DistBackendError on the others; mismatch when ranks hold different
  // schedules, skips or tied weights.
  Pipeline(ProcessGroup& group, std::map<int, Stage*> stages, PipelineOptions options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Collective: one pass over all micro-batches. When it throws the group is broken: the rank whose
  // callback threw sees that exception, the others DistError with its text. A step that is not
  // done within `timeout` (by default that of the group) throws DistTimeoutError; a callback that
  // never returns is noticed by the other ranks only. Throws InvalidArgument, and nothing is
  // broken, unless timeout > 0.
  void step(std::optional<Duration> timeout = {});

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}}}  // namespace c10d::v0::parallel
