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
#include "c10d/view.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Most dimensions of an Activation.
inline constexpr std::size_t kMaxActivationDims = 8;

// What stages send to each other: an activation, or the gradient of one. Memory of a GPU is refused
// with InvalidArgument; so is that of a tied gradient.
struct Activation {
  std::vector<std::int64_t> shape;  // its product is data.count
  View data;                        // the elements
  std::shared_ptr<void> owner;      // keeps `data`; null: the stage does, until step() returns
};

// An activation in memory of its own, not initialised. Throws InvalidArgument for a shape that
// makes no sense.
C10D_API Activation make_activation(std::vector<std::int64_t> shape, DType dtype = DType::f32);

// A part of the model, written by the user. Pipeline::step() calls it in the thread of its caller,
// in the order of the schedule: per micro-batch forward, backward_input, backward_weight. An
// exception out of any of them ends the step on every rank.
//
// backward_weight is called in the order of the micro-batches, 0, 1, ..., whatever the schedule. So
// gradients that are added to one buffer have the same bits under every schedule, and in one
// process that runs the micro-batches one after the other. backward_input may be called in another
// order.
class C10D_API Stage {
 public:
  virtual ~Stage();

  // Computes the outputs of a micro-batch. `inputs` are those from the previous stage, then those
  // of skip connections, ordered by stage; stage 0 has none and takes the data itself. Returns the
  // output for the next stage, then those for skip connections, ordered by stage; the last stage
  // returns none. Copy an input to use it later. Do not change an output until backward_input of
  // this micro-batch.
  virtual std::vector<Activation> forward(int micro_batch, std::span<const Activation> inputs) = 0;
  // Computes the gradients of the inputs. `gradients` has one for each output, in the same order
  // and with its shape. Returns one for each input, in the same order and with its shape.
  virtual std::vector<Activation> backward_input(int micro_batch,
                                                 std::span<const Activation> gradients) = 0;
  // Computes the gradients of the parameters and adds them to what is there.
  virtual void backward_weight(int micro_batch) = 0;

  // Called once per step, after the last backward_weight of the stage: where the schedule says
  // REDUCE_GRAD, else at its end. Data parallelism reduces here, over another group.
  virtual void reduce_grad() {}
  // Called where the schedule says UNSHARD: gather the parameters.
  virtual void unshard() {}
  // Called where the schedule says RESHARD: free the gathered parameters.
  virtual void reshard() {}

  // The gradient of the tied weight of that name, in memory of this stage alone. Called after
  // reduce_grad. Unless overridden, throws InvalidArgument.
  virtual View tied_gradient(std::string_view name);
};

// A parameter that several stages share. After reduce_grad of all stages, its gradients are added
// in the order of `stages`, and every one of these stages gets the sum.
struct TiedWeight {
  std::string name;         // for Stage::tied_gradient()
  std::vector<int> stages;  // in ascending order
};

// Options of a Pipeline.
struct PipelineOptions {
  Schedule schedule{};                                  // with or without sends and receives
  std::vector<Skip> skips{};                            // skip connections
  std::vector<TiedWeight> tied{};                       // parameters that stages share
  std::size_t activation_limit = std::size_t{1} << 30;  // bytes of one activation that is received
  std::optional<int> max_live_activations{};            // of the schedule: see validate()
  // Called before every action in the thread of step(): for a trace. Must not throw.
  std::function<void(const Action&)> on_begin{};
  // Called after every action. Must not throw.
  std::function<void(const Action&)> on_end{};
};

// Executes a schedule of stages over the ranks of a group. Receives are posted ahead; messages are
// matched by stage and micro-batch, so no order of sends can block. Shapes may differ between steps
// and micro-batches.
//
// Only the pipeline may use the group while the constructor or step() runs: stages communicate over
// other groups (new_group()). Several pipelines may share a group and stages, one at a time: one to
// train, one to evaluate with forward_only(). One thread at a time.
class C10D_API Pipeline {
 public:
  // Collective. `stages` are those that the schedule places on this rank, by number; they must
  // outlive the pipeline. `group` has one rank for each row of the schedule. Throws
  // InvalidArgument on the rank whose arguments make no sense, and DistBackendError on the others;
  // mismatch when ranks have different schedules, skips or tied weights.
  Pipeline(const ProcessGroup& group, std::map<int, Stage*> stages, PipelineOptions options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Runs the schedule once, over all micro-batches. Collective.
  // When a stage throws, the group is broken: the rank of that stage throws its exception, the
  // others a DistError with its text. Throws DistTimeoutError when the step is not done within
  // `timeout`, by default that of the group; a stage that never returns is noticed by the other
  // ranks only. Throws InvalidArgument, and breaks nothing, unless the timeout is positive.
  void step(std::optional<Duration> timeout = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}}}  // namespace c10d::v0::parallel
