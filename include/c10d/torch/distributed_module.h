// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/parallel/ddp.h"
#include "c10d/parallel/reproducible.h"
#include "c10d/process_group.h"
#include "c10d/torch/gradient_hooks.h"
#include "c10d/torch/module_state.h"
#include "c10d/torch/reduced_parameters.h"
#include "c10d/torch/tensor.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Options of a DistributedModule.
struct DistributedModuleOptions {
  ReducerOptions reducer{};             // how gradients are summed, and in which buckets
  bool find_unused_parameters = false;  // whether a parameter without a gradient counts as zero
};

// Data-parallel training of a module of LibTorch (torch: DistributedDataParallel). Gradients leave
// for the other ranks while backward runs.
//
//     DistributedModule ddp(group, net, {.reducer = {.mode = ReduceMode::reproducible}});
//     ddp.begin_step({.samples = n});            // n of this rank, in all its shards
//     for (int s = ddp.owned().first; s < ddp.owned().last; ++s)   // in mode fast there is one
//       loss_of(samples_of(batch, ddp.shards(), s)).backward();    // the SUM over these samples
//     ddp.finish();                              // grad() is now the mean over all samples
//     optimizer.step();
//
// Gradients. The loss of a shard is a sum (torch::kSum): finish() divides by the samples of all
// ranks, which may have different numbers of them. With a mean as loss say 1 sample in every step:
// that is the mean over the ranks, as in torch. From finish() to the next begin_step(), grad() of a
// parameter is a view of the bucket that was reduced: clone() what shall stay. In a step grad() is
// undefined, so zero_grad() is not needed. A backward outside of a step reduces nothing.
//
// Mode reproducible (ReducerOptions) gives the same bits at any number of ranks if a shard does on
// its own: one thread (at::set_num_threads(1)), deterministic algorithms, and nothing that depends
// on the other shards, as BatchNorm in training does.
//
// Errors. Every backward of a step must reach every parameter, or set find_unused_parameters: else
// finish() throws what names the missing ones, on every rank. Errors and failures otherwise are
// those of Reducer. A gradient that is sparse, and one in a step of 0 samples, throws
// InvalidArgument out of backward().
//
// Threads. One at a time. Parameters and buffers are dense, contiguous, and on the CPU; those that
// need no gradient are not reduced. begin_step() throws InvalidArgument where one was replaced
// (torch::load(), to()), frozen or unfrozen since: do that before, or make a new DistributedModule.
class DistributedModule {
 public:
  // Collective. Brings parameters and buffers of rank 0 to all ranks. Names, shapes, dtypes and
  // options must be the same on every rank, else all ranks throw mismatch, which names the first
  // difference. Throws InvalidArgument for a parameter or buffer as as_tensor() does; the other
  // ranks then throw mismatch with its text.
  DistributedModule(const ProcessGroup& group, std::shared_ptr<torch::nn::Module> module,
                    DistributedModuleOptions options = {})
      : group_(group),
        module_(std::move(module)),
        options_(options),
        state_(group, module_.get(), "DistributedModule",
               options.find_unused_parameters ? "find_unused_parameters" : ""),
        params_(state_),
        reducer_(group, params_.specs(), options.reducer),
        done_(params_.size()),
        hooks_(params_.tensors(), [this](std::size_t param) { take_gradient(param); }) {
    const bool fast = options_.reducer.mode == ReduceMode::fast;
    shards_ = fast ? group_.size() : options_.reducer.shards;
    state_.broadcast(group);
  }
  // The same for torch::nn::Sequential and other names of TORCH_MODULE().
  template <class Module>
  DistributedModule(const ProcessGroup& group, const torch::nn::ModuleHolder<Module>& module,
                    DistributedModuleOptions options = {})
      : DistributedModule(group, module.ptr(), options) {}
  // grad() of the parameters becomes undefined. In the middle of a step, as ~Reducer().
  ~DistributedModule() { params_.drop_gradients(); }
  DistributedModule(const DistributedModule&) = delete;
  DistributedModule& operator=(const DistributedModule&) = delete;

  // The module.
  const std::shared_ptr<torch::nn::Module>& module() const noexcept { return module_; }
  // What sums the gradients: for set_hook() and on_bucket_done(). Its parameters are those of the
  // module that need a gradient, in order. Steps go through this object.
  Reducer& reducer() noexcept { return reducer_; }
  // Number of shards of the global batch: in mode fast, the number of ranks.
  int shards() const noexcept { return shards_; }
  // The shards that this rank computes: one backward each, in order.
  ShardRange owned() const { return shards_of(shards_, group_.rank(), group_.size()); }

  // Begins a step, as Reducer::begin_step(). grad() of the parameters becomes undefined.
  void begin_step(StepInfo info) {
    params_.check(state_, hooks_);
    params_.drop_gradients();
    reducer_.begin_step(info);
    has_samples_ = info.samples != 0;
    was_used_ = true;
    done_.assign(params_.size(), 0);
    backwards_ = 0;
    in_backward_ = false;
    in_step_ = true;
  }
  // In a step, instead of a backward: for a shard without samples.
  void skip_shard() noexcept {
    ++backwards_;
    for (std::size_t i = 0; i < params_.size(); ++i) mark_zero(i);
  }
  // Ends a step, as Reducer::finish().
  StepResult finish() {
    in_step_ = false;
    if (options_.find_unused_parameters) fill_up(owned().count());
    const StepResult result = reducer_.finish();
    holds_sums_ = accumulates_;
    for (std::size_t i = 0; i < params_.size(); ++i) params_[i].mutable_grad() = bucket_view(i);
    return result;
  }

  // Accumulates over several steps, as Reducer::no_sync(): while it lives, finish() reduces
  // nothing, and grad() is the sum over the samples of this rank.
  class NoSync {
   public:
    ~NoSync() { module_.accumulates_ = false; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class DistributedModule;
    explicit NoSync(DistributedModule& module)
        : module_(module), reduces_nothing_(module.reducer_.no_sync()) {
      module.accumulates_ = true;
    }
    DistributedModule& module_;
    Reducer::NoSync reduces_nothing_;
  };
  // Throws InvalidArgument in a step, for it goes around whole ones, and in mode reproducible: use
  // more shards there.
  [[nodiscard]] NoSync no_sync() {
    if (in_step_)
      throw InvalidArgument("DistributedModule: no_sync() goes around begin_step() and finish()");
    return NoSync(*this);
  }

  // Brings the buffers of rank 0 to all ranks, BatchNorm's statistics for example. Collective.
  void broadcast_buffers() const {
    for (const auto& buffer : module_->buffers()) group_.broadcast(as_tensor(buffer), 0);
  }

  // The parameters and buffers as parts of a Snapshot, for save(), load() and AsyncSaver. `prefix`
  // is put before their names. The memory is that of the module.
  std::vector<TensorPart> parts(std::string_view prefix = "model.") const {
    return state_.parts(prefix);
  }

 private:
  // Where the next gradient belongs; between steps, where the mean is.
  at::Tensor bucket_view(std::size_t i) {
    return at::from_blob(reducer_.grad_view(i).data(), params_[i].sizes(), params_[i].options());
  }

  // Autograd has accumulated a gradient of this backward.
  void take_gradient(std::size_t i) {
    if (!in_step_ && !was_used_) {
      TORCH_WARN_ONCE("DistributedModule: nothing is reduced but in begin_step() to finish()");
    }
    if (!in_step_) return;
    if (!has_samples_)
      throw InvalidArgument("DistributedModule: a backward, though begin_step() said 0 samples");
    const at::NoGradGuard no_grad;
    at::Tensor& gradient = params_[i].mutable_grad();
    if (options_.find_unused_parameters && !std::exchange(in_backward_, true))
      torch::autograd::Engine::get_default_engine().queue_callback([this] {
        in_backward_ = false;
        fill_up(++backwards_);
      });
    if (!gradient.defined()) return mark_zero(i);
    params_.check_gradient(i, gradient);
    if (done_[i] < owned().count()) {
      const at::Tensor view = bucket_view(i);
      holds_sums_ ? view.add_(gradient) : view.copy_(gradient);
    }
    gradient.reset();
    ++done_[i];
    reducer_.mark_ready(i);
  }

  void mark_zero(std::size_t i) noexcept {
    ++done_[i];
    reducer_.mark_unused(i);
  }
  // Gradients that are missing in the first `shards` of this rank's are zero.
  void fill_up(int shards) noexcept {
    for (std::size_t i = 0; i < params_.size(); ++i)
      while (done_[i] < shards) mark_zero(i);
  }

  const ProcessGroup group_;
  const std::shared_ptr<torch::nn::Module> module_;
  const DistributedModuleOptions options_;
  const ModuleState state_;
  const ReducedParameters params_;
  Reducer reducer_;
  std::vector<int> done_;  // by parameter: shards of this step
  int shards_ = 1;         // of the global batch
  int backwards_ = 0;      // of this step that are over
  bool in_step_ = false, in_backward_ = false, has_samples_ = false;  // in this step
  bool was_used_ = false;                                             // a step has begun ever
  bool accumulates_ = false;                                          // a NoSync lives
  bool holds_sums_ = false;    // the views hold the sums of steps under a NoSync
  const GradientHooks hooks_;  // last: they use all of the above
};

}}}  // namespace c10d::v0::parallel
