// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>
#include <type_traits>

#include "c10d/collective.h"
#include "kernels/reduce.h"

namespace c10d { inline namespace v0 {

// A collective of a group of one rank: nothing but local work.
template <class T>
void run_alone(const T& op) {
  if constexpr (std::is_same_v<T, Exscan>) {
    return;  // rank 0 has no result
  } else if constexpr (requires { op.output.data, op.input.data; }) {
    if (op.output.count == 0) return;
    if constexpr (requires { op.op; }) {
      const std::byte* input = static_cast<const std::byte*>(op.input.data);
      reduce(op.output.dtype, op.op, static_cast<std::byte*>(op.output.data), {&input, 1},
             op.output.count);
    } else if (op.output.data != op.input.data) {
      std::memcpy(op.output.data, op.input.data, op.output.bytes());
    }
  }
}

}}  // namespace c10d::v0
