// SPDX-License-Identifier: BSD-3-Clause
// Kernels that change the type of elements, so that a library can reduce what it does not know.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cuda/map.h"
#include "kernels/cuda/numbers.h"

namespace c10d { inline namespace v0 { namespace cuda_kernels {

// As static_cast: f16 and bf16 round to nearest even, integers wrap, a boolean becomes 0 or 1.
template <class From, class To>
struct Cast : Map<Cast<From, To>> {
  using In = From;
  using Out = To;
  C10D_LANE explicit Cast(const Arguments&) {}
  C10D_LANE Out operator()(In value) const {
    if constexpr (std::is_same_v<From, Boolean>)
      return value.byte != 0 ? 1 : 0;
    else
      return static_cast<To>(value);
  }
};

// Whether a sum of zeros and ones was odd.
template <class From, class To>
struct Parity : Map<Parity<From, To>> {
  using In = From;
  using Out = To;
  C10D_LANE explicit Parity(const Arguments&) {}
  C10D_LANE Out operator()(In value) const { return value & 1; }
};

// The integers that floating point numbers are ordered by: i64 for f64, else i32.
template <class Real>
using Key = std::conditional_t<sizeof(Real) == 8, std::int64_t, std::int32_t>;

// -0 is less than +0, and NaN is what Extreme prefers to all numbers.
template <class Extreme, class Real>
struct ToKeys : Map<ToKeys<Extreme, Real>> {
  using In = Real;
  using Out = Key<Real>;
  C10D_LANE explicit ToKeys(const Arguments&) {}
  C10D_LANE Out operator()(In value) const {
    using Limits = std::numeric_limits<Bits<Real>>;
    const auto bits = std::bit_cast<Bits<Real>>(value);
    if (widen(value) != widen(value))
      return std::is_same_v<Extreme, word::min> ? Limits::min() : Limits::max();
    return bits < 0 ? static_cast<Bits<Real>>(bits ^ Limits::max()) : bits;
  }
};

// The numbers again; the keys of NaN become the positive quiet one.
template <class From, class Real>
struct FromKeys : Map<FromKeys<From, Real>> {
  using In = From;
  using Out = Real;
  C10D_LANE explicit FromKeys(const Arguments&) {}
  C10D_LANE Out operator()(In key) const {
    using Limits = std::numeric_limits<Bits<Real>>;
    const auto bits = static_cast<Bits<Real>>(key < 0 ? key ^ Limits::max() : key);
    const auto value = std::bit_cast<Real>(bits);
    if (widen(value) != widen(value)) return static_cast<Real>(__builtin_nanf(""));
    return value;
  }
};

#define C10D_CAST_KERNELS(K)       \
  K(cast, f32, f16, Cast)          \
  K(cast, f32, bf16, Cast)         \
  K(cast, f16, f32, Cast)          \
  K(cast, bf16, f32, Cast)         \
  K(cast, i16, i32, Cast)          \
  K(cast, u16, u32, Cast)          \
  K(cast, i32, i16, Cast)          \
  K(cast, u32, u16, Cast)          \
  K(cast, boolean, u8, Cast)       \
  K(parity, u8, u8, Parity)        \
  K(to_keys, min, f64, ToKeys)     \
  K(to_keys, min, f32, ToKeys)     \
  K(to_keys, min, f16, ToKeys)     \
  K(to_keys, min, bf16, ToKeys)    \
  K(to_keys, max, f64, ToKeys)     \
  K(to_keys, max, f32, ToKeys)     \
  K(to_keys, max, f16, ToKeys)     \
  K(to_keys, max, bf16, ToKeys)    \
  K(from_keys, i64, f64, FromKeys) \
  K(from_keys, i32, f32, FromKeys) \
  K(from_keys, i32, f16, FromKeys) \
  K(from_keys, i32, bf16, FromKeys)

}}}  // namespace c10d::v0::cuda_kernels
