// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/ATen.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "c10d/parallel/ddp.h"
#include "c10d/parallel/fsdp.h"
#include "c10d/process_group.h"
#include "c10d/torch/unit_parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {

// One link of a ShardedSequence.
struct ShardedUnit {
  std::string name;  // with a dot it begins the names of the parameters in a checkpoint
  std::shared_ptr<torch::nn::Module> module;             // has the parameters
  std::function<at::Tensor(const at::Tensor&)> forward;  // from the output of the unit before
};

// A model that is a chain of units, with parameters, gradients and optimizer sharded over the ranks
// by Fsdp (torch: FullyShardedDataParallel). A unit is gathered for its forward and once more for
// its backward.
//
//     ShardedSequence model(group, {{"conv", conv, conv_forward}, {"head", head, head_forward}});
//     torch::optim::SGD optimizer(model.parameters(), 0.05);   // of this rank's shards
//     model.step(inputs, loss_of, {.samples = n});             // n of this rank
//     optimizer.step();
//     model.sync_parameters();
//
// A step takes one input for each shard of the global batch that this rank owns, and computes all
// of them in a unit before the next unit. The bits are those of DistributedModule, with the same
// conditions in mode reproducible.
//
// Parameters. They are f32 on the CPU, and each is in one unit. Their memory is there only while
// forward of their unit runs. Elsewhere, and when this object is gone, do not touch them: the
// process would end. save() parts(), and load() them into a DistributedModule. One
// without a gradient, also a frozen one, has the gradient 0. Buffers stay whole on each rank;
// nobody averages them.
//
// Errors are those of Fsdp. An exception out of forward, of the loss, or for the wrong number of
// inputs aborts the group with its text, so that the other ranks hear of it. Threads. One at a
// time.
class ShardedSequence {
 public:
  // Collective. Begins with the parameters and buffers of rank 0. Throws as ModuleState and Fsdp,
  // and InvalidArgument for a parameter in two units and for FsdpOptions::compute other than f32.
  ShardedSequence(const ProcessGroup& group, std::vector<ShardedUnit> units,
                  FsdpOptions options = {})
      : group_(group), units_(std::move(units)), fsdp_(group, described(), options) {
    if (options.compute != DType::f32)
      throw InvalidArgument("ShardedSequence: FsdpOptions::compute is f32 here");
    for (std::size_t u = 0; u < units_.size(); ++u) {
      fsdp_.assign(u, floats_of(params_[u].join()));
      params_[u].set_memory(nullptr);
      shards_.push_back(tensor_of(fsdp_.shard(u)).requires_grad_());
    }
  }
  ShardedSequence(const ShardedSequence&) = delete;
  ShardedSequence& operator=(const ShardedSequence&) = delete;

  // What shards and sums. Steps go through this object.
  Fsdp& fsdp() noexcept { return fsdp_; }
  // The shards of the global batch that this rank computes.
  ShardRange owned() const noexcept { return fsdp_.owned(); }
  // This rank's part of each unit, for an optimizer that treats each element by itself. From step()
  // to the next one, grad() is the mean over the samples of all ranks.
  std::vector<at::Tensor> parameters() const { return shards_; }

  // The loss of the i-th shard of this rank for the output of the last unit.
  using Loss = std::function<at::Tensor(std::size_t i, const at::Tensor& output)>;
  // Forward and backward of a batch. inputs[i] is that of shard owned().first + i; it is undefined
  // for a shard without samples. loss(i, output) is the sum over its samples. Collective.
  StepResult step(const std::vector<at::Tensor>& inputs, const Loss& loss, StepInfo info) {
    try {
      return checked_step(inputs, loss, info);
    } catch (const DistError&) {
      throw;  // the others have heard of it
    } catch (const c10::Error& error) {
      group_.abort(error.what_without_backtrace());
      throw;
    } catch (const std::exception& error) {
      group_.abort(error.what());
      throw;
    }
  }
  // After the optimizer, and after load(): as Fsdp::sync_parameters(). Collective.
  void sync_parameters() { fsdp_.sync_parameters(); }

  // The output for an input, without gradients. Collective: inputs may differ between ranks.
  at::Tensor forward(at::Tensor value) {
    const at::NoGradGuard no_grad;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      gather(u);
      value = units_[u].forward(value);
      release(u);
    }
    fsdp_.end_step();
    return value;
  }

  // This rank's parts of the parameters, and the buffers, as parts of a Snapshot. The names are
  // those that a DistributedModule of the same modules has.
  std::vector<TensorPart> parts(std::string_view prefix = "model.") {
    std::vector<TensorPart> all;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const std::vector<TensorPart> own = fsdp_.parts(u, prefix, fsdp_.shard(u));
      all.insert(all.end(), own.begin(), own.end());
      const std::vector<TensorPart> buffers = params_[u].buffers(prefix);
      all.insert(all.end(), buffers.begin(), buffers.end());
    }
    return all;
  }

 private:
  // Collective. Fills params_.
  std::vector<Unit> described() {
    std::vector<Unit> all;
    std::unordered_set<const void*> seen;
    for (const ShardedUnit& unit : units_) {
      params_.emplace_back(group_, unit.name, unit.module.get());
      all.push_back(params_.back().unit());
      for (const at::Tensor& param : params_.back().params())
        if (!seen.insert(param.unsafeGetTensorImpl()).second)
          throw InvalidArgument("ShardedSequence: a parameter of unit " + unit.name +
                                " is in a unit before, too");
    }
    return all;
  }

  void gather(std::size_t u) { params_[u].set_memory(fsdp_.unshard(u).data); }
  void release(std::size_t u) {
    params_[u].set_memory(nullptr);
    fsdp_.reshard(u);
  }

  StepResult checked_step(const std::vector<at::Tensor>& inputs, const Loss& loss, StepInfo info) {
    if (inputs.size() != static_cast<std::size_t>(owned().count()))
      throw InvalidArgument(c10::str("ShardedSequence: ", inputs.size(), " inputs on rank ",
                                     group_.rank(), ", which has ", owned().count(), " shards"));
    std::vector<std::int64_t> samples{info.samples};
    group_.all_reduce(samples);
    const at::AutoGradMode enabled(true);
    std::vector<std::vector<at::Tensor>> entries(units_.size()), outputs(units_.size());
    std::vector<at::Tensor> values = inputs;  // by shard
    for (std::size_t u = 0; u < units_.size(); ++u) {
      gather(u);
      for (at::Tensor& value : values) {
        if (value.defined()) value = value.detach().requires_grad_(u > 0);
        entries[u].push_back(value);
        if (value.defined()) value = units_[u].forward(value);
        outputs[u].push_back(value);
      }
      release(u);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {  // from here on gradients
      if (!values[i].defined()) continue;
      const at::Tensor output = values[i].detach().requires_grad_();
      values[i] = torch::autograd::grad({loss(i, output)}, {output})[0];
    }
    for (std::size_t u = units_.size(); u-- > 0;) {
      gather(u);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const at::Tensor output = std::exchange(outputs[u][i], {});
        values[i] = params_[u].backward(output, entries[u][i], values[i], fsdp_.next_gradient(u));
        fsdp_.gradient_done(u);
      }
      fsdp_.reduce(u, static_cast<double>(std::max<std::int64_t>(samples[0], 1)));
      release(u);
    }
    fsdp_.end_step();
    for (std::size_t u = 0; u < units_.size(); ++u)
      shards_[u].mutable_grad() = tensor_of(fsdp_.gradient(u));
    return {samples[0]};
  }

  const ProcessGroup group_;
  const std::vector<ShardedUnit> units_;
  std::vector<UnitParameters> params_;  // by unit
  Fsdp fsdp_;
  std::vector<at::Tensor> shards_;  // by unit
};

}}}  // namespace c10d::v0::parallel
