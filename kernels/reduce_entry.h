// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "c10d/collective.h"
#include "c10d/view.h"
#include "kernels/copy.h"

namespace c10d { inline namespace v0 {

// What holds f32 in the place of f16 and bf16, where these are added up or multiplied: the output
// of reduce_partial(), the inputs of reduce_end().
enum class Widened { nothing, output, inputs };

struct ReduceArgs {
  std::byte* out;
  const std::byte* const* in;
  std::size_t n;  // inputs, at least one
  std::size_t count;
  std::size_t divisor;  // of avg
  StorePolicy policy = StorePolicy::temporal;
  Copying refill = {};
  Widened widened = Widened::nothing;
};

// One build of the loops. False when the op has no meaning on the dtype.
using ReduceEntry = bool(DType dtype, ReduceOp op, const ReduceArgs& args);
ReduceEntry reduce_baseline;
ReduceEntry reduce_avx2;
ReduceEntry reduce_avx512;

}}  // namespace c10d::v0
