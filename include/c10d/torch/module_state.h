// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "c10d/parallel/parameters.h"
#include "c10d/process_group.h"
#include "c10d/torch/tensor.h"

namespace c10d { inline namespace v0 { namespace parallel {

// The parameters and buffers of a module, the same on all ranks. A tensor that has several names
// has the first one.
class ModuleState {
 public:
  // A parameter or buffer.
  struct Item {
    at::Tensor tensor;  // shares its memory with the module
    ParamSpec spec;     // its name is that in the module
    bool is_parameter;  // or else a buffer
  };

  // Collective. Throws mismatch on every rank, which names the first difference, when names,
  // shapes, dtypes or `options` differ. Throws InvalidArgument for what as_tensor() refuses, for
  // memory of a GPU, and for no module; the other ranks then throw mismatch with its text. `who`
  // begins the messages.
  ModuleState(const ProcessGroup& group, const torch::nn::Module* module, const std::string& who,
              std::string_view options) {
    if (module != nullptr) {
      for (const auto& item : module->named_parameters()) add(item.key(), item.value(), true);
      for (const auto& item : module->named_buffers()) add(item.key(), item.value(), false);
    } else {
      problem_ = "there is no module";
    }
    std::vector<ParamSpec> specs;
    for (const Item& item : items_) specs.push_back(item.spec);
    if (!problem_.empty()) problem_ = who + ": " + problem_;
    agree_on_parameters(group, who, specs, options, problem_);
  }

  // All of them, parameters first.
  const std::vector<Item>& items() const noexcept { return items_; }
  // Brings those of rank 0 to all ranks. Collective.
  void broadcast(const ProcessGroup& group) const {
    for (const Item& item : items_) group.broadcast(as_tensor(item.tensor), 0);
  }
  // Parts of a Snapshot, whose memory is that of the module. `prefix` is put before the names.
  std::vector<TensorPart> parts(std::string_view prefix) const {
    std::vector<TensorPart> all;
    for (const Item& item : items_)
      all.push_back(part_of(std::string(prefix) + item.spec.name, item.tensor));
    return all;
  }

 private:
  void add(const std::string& name, const at::Tensor& tensor, bool is_parameter) {
    if (!tensor.defined() || !seen_.insert(tensor.unsafeGetTensorImpl()).second) return;
    items_.push_back({tensor, {}, is_parameter});
    items_.back().spec.name = name;
    try {
      items_.back().spec = part_of(name, tensor).spec;
    } catch (const InvalidArgument& error) {
      if (problem_.empty()) problem_ = name + ": " + error.what();
    }
  }

  std::vector<Item> items_;
  std::unordered_set<const void*> seen_;
  std::string problem_;  // the first one
};

}}}  // namespace c10d::v0::parallel
