// SPDX-License-Identifier: BSD-3-Clause
// The elements that kernels see, and how those of 16 bits are computed with. The bits are those of
// kernels/reduce.h.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "c10d/small_float.h"
#include "kernels/cuda/lane.h"

namespace c10d { inline namespace v0 { namespace cuda_kernels {

// Any byte but 0 is true.
struct Boolean {
  std::uint8_t byte;
};

template <class T>
inline constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <class T>
inline constexpr bool is_real = std::is_floating_point_v<T> || is_half<T>;

// What an element is computed in.
template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

// Integers of the same size.
template <class T>
using Bits = std::conditional_t<
    sizeof(T) == 8, std::int64_t,
    std::conditional_t<sizeof(T) == 4, std::int32_t,
                       std::conditional_t<sizeof(T) == 2, std::int16_t, std::int8_t>>>;

template <class T>
C10D_LANE Wide<T> widen(T value) {
  return static_cast<Wide<T>>(value);
}

// Every NaN becomes the positive quiet one.
template <class T>
C10D_LANE T quiet(T value) {
  return value == value ? value : static_cast<T>(__builtin_nanf(""));
}

// A result as reduce() writes it.
template <class To, class From>
C10D_LANE To result(From value) {
  if constexpr (is_real<To>) return static_cast<To>(quiet(value));
  return static_cast<To>(value);
}

// As the lists of kernels call types and operations.
namespace word {
using f64 = double;
using f32 = float;
using f16 = Float16;
using bf16 = BFloat16;
using i64 = std::int64_t;
using i32 = std::int32_t;
using i16 = std::int16_t;
using i8 = std::int8_t;
using u64 = std::uint64_t;
using u32 = std::uint32_t;
using u16 = std::uint16_t;
using u8 = std::uint8_t;
using boolean = Boolean;
// NaN before all numbers, and -0 less than +0.
struct min {
  template <class T>
  C10D_LANE static T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      if (b != b) return b;
      if (a == b) return std::bit_cast<Bits<T>>(a) < 0 ? a : b;
    }
    return a < b ? a : b;
  }
};
struct max {
  template <class T>
  C10D_LANE static T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      if (b != b) return b;
      if (a == b) return std::bit_cast<Bits<T>>(a) < 0 ? b : a;
    }
    return a < b ? b : a;
  }
};
struct sum {
  template <class T>
  C10D_LANE static T combine(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct prod {
  template <class T>
  C10D_LANE static T combine(T a, T b) {
    if constexpr (std::is_integral_v<T> && sizeof(T) < 4)  // else it would be a product of ints
      return static_cast<T>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
    return static_cast<T>(a * b);
  }
};
struct band {
  template <class T>
  C10D_LANE static T combine(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct bor {
  template <class T>
  C10D_LANE static T combine(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct bxor {
  template <class T>
  C10D_LANE static T combine(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
}  // namespace word

}}}  // namespace c10d::v0::cuda_kernels
