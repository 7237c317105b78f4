// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "c10d/collective.h"
#include "c10d/view.h"
#include "kernels/copy.h"

namespace c10d { inline namespace v0 {

struct ReduceArgs {
  std::byte* out;
  const std::byte* const* in;
  std::size_t n;  // inputs, at least one
  std::size_t count;
  StorePolicy policy;
  Copying refill;
};

// One build of the loops. False when the op has no meaning on the dtype.
using ReduceEntry = bool(DType dtype, ReduceOp op, const ReduceArgs& args);
ReduceEntry reduce_baseline;
ReduceEntry reduce_avx2;
ReduceEntry reduce_avx512;

}}  // namespace c10d::v0
