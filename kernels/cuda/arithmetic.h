// SPDX-License-Identifier: BSD-3-Clause
// Kernels that compute: the division of an average, and one operation on two buffers.
#pragma once

#include "kernels/cuda/map.h"
#include "kernels/cuda/numbers.h"

namespace c10d { inline namespace v0 { namespace cuda_kernels {

// By Arguments::divisor, in the type that elements are computed in.
template <class From, class To>
struct Divide : Map<Divide<From, To>> {
  using In = From;
  using Out = To;
  Wide<From> divisor;
  C10D_LANE explicit Divide(const Arguments& arguments)
      : divisor(static_cast<Wide<From>>(arguments.divisor)) {}
  C10D_LANE Out operator()(In value) const { return result<To>(widen(value) / divisor); }
};

// What reduce() makes of two inputs.
template <class Op, class T>
struct Combine : Map<Combine<Op, T>> {
  static constexpr int kOperands = 2;
  using In = T;
  using Out = T;
  C10D_LANE explicit Combine(const Arguments&) {}
  C10D_LANE Out operator()(In a, In b) const { return result<T>(Op::combine(widen(a), widen(b))); }
};

// Booleans are 0 and 1, whose sum is "or".
template <class Op>
struct Combine<Op, Boolean> : Map<Combine<Op, Boolean>> {
  static constexpr int kOperands = 2;
  using In = Boolean;
  using Out = Boolean;
  C10D_LANE explicit Combine(const Arguments&) {}
  C10D_LANE Out operator()(In a, In b) const {
    const std::uint8_t left = a.byte != 0 ? 1 : 0, right = b.byte != 0 ? 1 : 0;
    if constexpr (std::is_same_v<Op, word::sum>)
      return {static_cast<std::uint8_t>(left | right)};
    else
      return {Op::combine(left, right)};
  }
};

#define C10D_ARITHMETIC_KERNELS(K)   \
  K(divide, f64, f64, Divide)        \
  K(divide, f32, f32, Divide)        \
  K(divide, f16, f16, Divide)        \
  K(divide, bf16, bf16, Divide)      \
  K(divide, f32, f16, Divide)        \
  K(divide, f32, bf16, Divide)       \
  K(combine, sum, f64, Combine)      \
  K(combine, sum, f32, Combine)      \
  K(combine, sum, f16, Combine)      \
  K(combine, sum, bf16, Combine)     \
  K(combine, sum, u64, Combine)      \
  K(combine, sum, u32, Combine)      \
  K(combine, sum, u16, Combine)      \
  K(combine, sum, u8, Combine)       \
  K(combine, sum, boolean, Combine)  \
  K(combine, prod, u64, Combine)     \
  K(combine, prod, u32, Combine)     \
  K(combine, prod, u16, Combine)     \
  K(combine, prod, u8, Combine)      \
  K(combine, prod, boolean, Combine) \
  K(combine, min, f64, Combine)      \
  K(combine, min, f32, Combine)      \
  K(combine, min, f16, Combine)      \
  K(combine, min, bf16, Combine)     \
  K(combine, min, i64, Combine)      \
  K(combine, min, i32, Combine)      \
  K(combine, min, i16, Combine)      \
  K(combine, min, i8, Combine)       \
  K(combine, min, u64, Combine)      \
  K(combine, min, u32, Combine)      \
  K(combine, min, u16, Combine)      \
  K(combine, min, u8, Combine)       \
  K(combine, max, f64, Combine)      \
  K(combine, max, f32, Combine)      \
  K(combine, max, f16, Combine)      \
  K(combine, max, bf16, Combine)     \
  K(combine, max, i64, Combine)      \
  K(combine, max, i32, Combine)      \
  K(combine, max, i16, Combine)      \
  K(combine, max, i8, Combine)       \
  K(combine, max, u64, Combine)      \
  K(combine, max, u32, Combine)      \
  K(combine, max, u16, Combine)      \
  K(combine, max, u8, Combine)       \
  K(combine, bxor, boolean, Combine) \
  K(combine, band, u64, Combine)     \
  K(combine, band, u32, Combine)     \
  K(combine, band, u16, Combine)     \
  K(combine, band, u8, Combine)      \
  K(combine, bor, u64, Combine)      \
  K(combine, bor, u32, Combine)      \
  K(combine, bor, u16, Combine)      \
  K(combine, bor, u8, Combine)       \
  K(combine, bxor, u64, Combine)     \
  K(combine, bxor, u32, Combine)     \
  K(combine, bxor, u16, Combine)     \
  K(combine, bxor, u8, Combine)

}}}  // namespace c10d::v0::cuda_kernels
