// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "c10d/op_traits.h"

namespace c10d { inline namespace v0 {

// Why a backend that reduces with the kernels of the CPU cannot do the op, or empty.
inline std::string_view why_not_on_host(OpKind op, ReduceOp::Kind kind, DType dtype) noexcept {
  if (const auto why = why_unsupported(op, kind, dtype); !why.empty() || !is_reduction(op))
    return why;
  return is_float8(dtype)
             ? "numbers of 8 bits are moved only: reduce them as f16 or f32, or over nccl"
             : "";
}

}}  // namespace c10d::v0
