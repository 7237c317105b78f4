// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "c10d/process_group.h"
#include "c10d/tensor.h"

// What the trainers know of a model: named, typed, shaped ranges of bytes. They never see a tensor
// framework, a layer or a graph.
namespace c10d { inline namespace v0 { namespace parallel {

// One parameter. Every rank gives the same list in the same order.
struct ParamSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;

  // Elements: the product of the shape; 1 for a scalar. A shape is checked where a list is taken.
  std::size_t count() const noexcept {
    std::size_t product = 1;
    for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
    return product;
  }
  std::size_t bytes() const noexcept { return count() * size_of(dtype); }
  bool operator==(const ParamSpec&) const = default;
};

// Collective: the text of every rank, by rank. Throws what all_gather_v() throws.
C10D_API std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own);

}}}  // namespace c10d::v0::parallel
