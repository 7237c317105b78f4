// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/process_group.h"
#include "c10d/view.h"

// What Reducer, Fsdp and checkpoints know of a model: named arrays with a dtype and a shape. They
// know no tensor framework, layer or graph.
namespace c10d { inline namespace v0 { namespace parallel {

// One parameter of a model. Every rank gives the same list of them in the same order.
struct ParamSpec {
  std::string name;                 // different for each parameter
  std::vector<std::int64_t> shape;  // row-major; empty for a scalar
  DType dtype = DType::f32;         // of its elements

  // Number of elements: the product of the shape. It does not check the shape; functions that take
  // a list of parameters do.
  std::size_t count() const noexcept {
    std::size_t product = 1;
    for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
    return product;
  }
  // Size in bytes.
  std::size_t bytes() const noexcept { return count() * size_of(dtype); }
  bool operator==(const ParamSpec&) const = default;  // compares all fields
};

// Gathers a text of every rank, by rank. Collective. Throws what all_gather_v() throws.
C10D_API std::vector<std::string> gather_texts(const ProcessGroup& group, const std::string& own);

// Checks that all ranks give the same `list` and the same `options`, a line of text, and that the
// list is right: names are there and differ, no extent is negative. Collective. Throws mismatch on
// every rank, which names the first difference. `problem` is what else this rank found wrong, empty
// for nothing: then it throws InvalidArgument with that text, and the others mismatch with it.
// `who` begins the messages.
C10D_API void agree_on_parameters(const ProcessGroup& group, std::string_view who,
                                  std::span<const ParamSpec> list, std::string_view options,
                                  std::string problem = {});

}}}  // namespace c10d::v0::parallel
