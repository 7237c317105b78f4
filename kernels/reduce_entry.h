// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "c10d/collective.h"
#include "c10d/tensor.h"
#include "kernels/copy.h"

namespace c10d { inline namespace v0 {

// One build of the loops. False when there is no such pair. n > 0.
using ReduceEntry = bool(DType dtype, ReduceOp::Kind kind, double factor, std::byte* out,
                         const std::byte* const* in, std::size_t n, std::size_t count,
                         StorePolicy policy, const Copying& refill);
ReduceEntry reduce_baseline;
ReduceEntry reduce_avx2;
ReduceEntry reduce_avx512;

}}  // namespace c10d::v0
