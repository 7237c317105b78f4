// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/ATen.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/parallel/units.h"
#include "c10d/process_group.h"
#include "c10d/torch/module_state.h"

namespace c10d { inline namespace v0 { namespace parallel {

// An array as a tensor of one dimension. The memory stays where it is.
inline at::Tensor tensor_of(std::span<float> values) {
  return at::from_blob(values.data(), static_cast<std::int64_t>(values.size()), at::kFloat);
}
// The elements of a contiguous tensor of floats.
inline std::span<float> floats_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

// The parameters of a module as a unit of Fsdp: one array, whose memory comes and goes.
class UnitParameters {
 public:
  // Collective. Brings parameters and buffers of rank 0 to all ranks. Throws as ModuleState.
  UnitParameters(const ProcessGroup& group, const std::string& name,
                 const torch::nn::Module* module)
      : state_(group, module, "ShardedSequence: unit " + name, "") {
    state_.broadcast(group);
    unit_.name = name;
    for (const ModuleState::Item& item : state_.items()) {
      if (!item.is_parameter) continue;
      params_.push_back(item.tensor);
      unit_.parameters.push_back(item.spec);
      unit_.parameters.back().name = name + "." + item.spec.name;
    }
  }

  // The same for Fsdp. The name of the unit and a dot begin the names of the parameters.
  const Unit& unit() const noexcept { return unit_; }
  // The tensors of the module, in the order of unit().
  const std::vector<at::Tensor>& params() const noexcept { return params_; }
  // The buffers as parts of a Snapshot, named likewise.
  std::vector<TensorPart> buffers(std::string_view prefix) const {
    std::vector<TensorPart> all;
    for (const ModuleState::Item& item : state_.items())
      if (!item.is_parameter)
        all.push_back(
            part_of(std::string(prefix) + unit_.name + "." + item.spec.name, item.tensor));
    return all;
  }

  // Makes the parameters views of one array, which has their values, and returns it.
  at::Tensor join() {
    const at::NoGradGuard no_grad;
    std::int64_t count = 0;
    for (const at::Tensor& param : params_) count += param.numel();
    at::Tensor whole = at::empty(count, at::kFloat);
    std::int64_t at = 0;
    for (at::Tensor& param : params_) {
      const at::Tensor place =
          whole.narrow(0, std::exchange(at, at + param.numel()), param.numel());
      place.copy_(param.flatten());
      param.set_data(place.view_as(param));
    }
    storage_ = whole.storage();
    return whole;
  }
  // Where the array of join() lies from now on; null: nowhere. What a graph keeps of the parameters
  // are views, which follow.
  void set_memory(void* data) { storage_.set_data_ptr_noswap(at::DataPtr(data, at::kCPU)); }

  // Backward of an output that was computed from `entry`: writes the gradients of the parameters, 0
  // where there is none, in the order of the array. Returns that of `entry`, if it needs one.
  at::Tensor backward(const at::Tensor& output, const at::Tensor& entry, const at::Tensor& gradient,
                      std::span<float> to) const {
    tensor_of(to).zero_();
    if (!output.defined() || !output.requires_grad()) return {};
    std::vector<at::Tensor> by, places;
    std::size_t at = 0;
    for (const at::Tensor& param : params_) {
      const auto count = static_cast<std::size_t>(param.numel());
      if (param.requires_grad()) {
        by.push_back(param);
        places.push_back(tensor_of(to.subspan(at, count)));
      }
      at += count;
    }
    if (entry.requires_grad()) by.push_back(entry);
    const auto found = torch::autograd::grad({output}, by, {gradient}, false, false, true);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < places.size(); ++i)
      if (found[i].defined()) places[i].copy_(found[i].flatten());
    return entry.requires_grad() ? found.back() : at::Tensor();
  }

 private:
  ModuleState state_;
  Unit unit_;
  std::vector<at::Tensor> params_;
  at::Storage storage_;
};

}}}  // namespace c10d::v0::parallel
