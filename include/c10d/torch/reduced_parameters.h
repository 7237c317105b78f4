// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "c10d/error.h"
#include "c10d/parallel/parameters.h"
#include "c10d/torch/gradient_hooks.h"
#include "c10d/torch/module_state.h"

namespace c10d { inline namespace v0 { namespace parallel {

// The parameters of a module that need a gradient, in order.
class ReducedParameters {
 public:
  // Those of the module of `state` that need one now.
  explicit ReducedParameters(const ModuleState& state) {
    for (const ModuleState::Item& item : state.items()) {
      if (!item.tensor.requires_grad()) continue;
      tensors_.push_back(item.tensor);
      specs_.push_back(item.spec);
    }
  }

  // They themselves: these tensors share their memory with the module.
  const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }
  // Their names, shapes and dtypes.
  const std::vector<ParamSpec>& specs() const noexcept { return specs_; }
  // How many there are.
  std::size_t size() const noexcept { return tensors_.size(); }
  // One of them, in [0, size()).
  const at::Tensor& operator[](std::size_t i) const noexcept { return tensors_[i]; }

  // grad() of all becomes undefined.
  void drop_gradients() const {
    for (const at::Tensor& param : tensors_) param.mutable_grad().reset();
  }
  // Throws InvalidArgument, which names the parameter, unless the module of `state` has the same
  // ones as at first, and `hooks` are theirs.
  void check(const ModuleState& state, const GradientHooks& hooks) const {
    std::size_t i = 0;
    for (const ModuleState::Item& item : state.items()) {
      if (!item.is_parameter) continue;
      const bool needed = i < size() && tensors_[i].is_same(item.tensor);
      const bool needs = item.tensor.requires_grad();
      if (needed && !needs) refuse(item, "frozen");
      if (!needed && needs) refuse(item, "unfrozen");
      if (needed && !hooks.has(i, item.tensor)) refuse(item, "replaced, by torch::load() or to(),");
      i += needed ? 1 : 0;
    }
  }
  // Throws InvalidArgument for a sparse gradient.
  void check_gradient(std::size_t i, const at::Tensor& gradient) const {
    if (gradient.layout() == at::kStrided) return;
    throw InvalidArgument(c10::str("DistributedModule: the gradient of parameter ", specs_[i].name,
                                   " is ", gradient.layout(),
                                   "; only dense gradients are reduced"));
  }

 private:
  [[noreturn]] static void refuse(const ModuleState::Item& item, const char* happened) {
    throw InvalidArgument(c10::str("DistributedModule: parameter ", item.spec.name, " was ",
                                   happened,
                                   " since: do that before the DistributedModule is "
                                   "made, or make a new one"));
  }

  std::vector<at::Tensor> tensors_;
  std::vector<ParamSpec> specs_;
};

}}}  // namespace c10d::v0::parallel
