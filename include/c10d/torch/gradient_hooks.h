// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace c10d { inline namespace v0 { namespace parallel {

// Calls a function whenever a backward has accumulated a gradient into grad() of a parameter, once
// all uses of the parameter have added to it. Until this object is destroyed.
class GradientHooks {
 public:
  // `use` gets the number of the parameter, in the thread that autograd runs it in. What it throws
  // comes out of backward().
  GradientHooks(const std::vector<at::Tensor>& params, std::function<void(std::size_t)> use)
      : use_(std::move(use)) {
    for (std::size_t i = 0; i < params.size(); ++i) {
      Node node = torch::autograd::impl::grad_accumulator(params[i]);
      const std::uintptr_t key =
          node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
              [this, i](const auto& outputs, const auto&) {
                use_(i);
                return outputs;
              }));
      hooks_.emplace_back(std::move(node), key);
    }
  }
  // In no backward.
  ~GradientHooks() {
    for (const auto& [node, key] : hooks_) node->del_post_hook(key);
  }
  // Whether autograd still has the node of parameter i that is hooked: torch::load() and to() give
  // it another one.
  bool has(std::size_t i, const at::Tensor& param) const {
    return torch::autograd::impl::grad_accumulator(param) == hooks_[i].first;
  }
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  // A shared_ptr in PyTorch 1.13, an intrusive_ptr in 2.15.
  using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<at::Tensor>()));
  const std::function<void(std::size_t)> use_;
  // Autograd itself keeps a node, and its hooks with it, only as long as a graph that has it.
  std::vector<std::pair<Node, std::uintptr_t>> hooks_;
};

}}}  // namespace c10d::v0::parallel
