// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <compare>
#include <cstdint>
#include <limits>

#include "c10d/export.h"

// 16-bit floating point numbers as they lie in memory. They convert explicitly, compare and negate.
// To compute with them, convert them to float: ops do the same.
namespace c10d { inline namespace v0 {

// An IEEE binary16 number: sign, 5 bits of exponent, 10 of fraction. Largest finite value 65504.
class Float16 {
 public:
  // Zero.
  constexpr Float16() noexcept = default;
  // Rounds to nearest, ties to even. Overflow is infinity; every NaN becomes the quiet NaN of its
  // sign.
  explicit constexpr Float16(float value) noexcept : bits_(round(value)) {}
  // The number with these bits.
  static constexpr Float16 from_bits(std::uint16_t bits) noexcept {
    Float16 number;
    number.bits_ = bits;
    return number;
  }
  // The bits.
  constexpr std::uint16_t bits() const noexcept { return bits_; }
  // Exact.
  explicit constexpr operator float() const noexcept {
    const std::uint32_t sign = (bits_ & 0x8000u) << 16;
    const std::uint32_t magnitude = bits_ & 0x7fffu;
    if (magnitude >= 0x7c00)  // infinity, NaN
      return std::bit_cast<float>(sign | magnitude << 13 | 0x7f800000u);
    if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
    const float denormal = static_cast<float>(magnitude) * 0x1p-24f;
    return sign != 0 ? -denormal : denormal;
  }
  // The same number with the other sign.
  constexpr Float16 operator-() const noexcept {
    return from_bits(static_cast<std::uint16_t>(bits_ ^ 0x8000u));
  }
  // Compares as float does: -0 equals 0, NaN equals nothing.
  friend constexpr bool operator==(Float16 a, Float16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }
  // Orders as float does.
  friend constexpr std::partial_ordering operator<=>(Float16 a, Float16 b) noexcept {
    return static_cast<float>(a) <=> static_cast<float>(b);
  }

 private:
  static constexpr std::uint16_t round(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    std::uint32_t half = 0x7e00;
    if (magnitude < 0x38800000u)  // the last bit of 0.5 weighs as much as that of an f16 denormal
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    else if (magnitude < 0x477ff000u)
      half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    else if (magnitude <= 0x7f800000u)
      half = 0x7c00;
    return static_cast<std::uint16_t>(half | (word >> 16 & 0x8000u));
  }

  std::uint16_t bits_ = 0;
};

// A bfloat16 number: the upper 16 bits of a float. Largest finite value about 3.39e38.
class BFloat16 {
 public:
  // Zero.
  constexpr BFloat16() noexcept = default;
  // Rounds to nearest, ties to even. Overflow is infinity; every NaN becomes the quiet NaN of its
  // sign.
  explicit constexpr BFloat16(float value) noexcept : bits_(round(value)) {}
  // The number with these bits.
  static constexpr BFloat16 from_bits(std::uint16_t bits) noexcept {
    BFloat16 number;
    number.bits_ = bits;
    return number;
  }
  // The bits.
  constexpr std::uint16_t bits() const noexcept { return bits_; }
  // Exact.
  explicit constexpr operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
  }
  // The same number with the other sign.
  constexpr BFloat16 operator-() const noexcept {
    return from_bits(static_cast<std::uint16_t>(bits_ ^ 0x8000u));
  }
  // Compares as float does: -0 equals 0, NaN equals nothing.
  friend constexpr bool operator==(BFloat16 a, BFloat16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }
  // Orders as float does.
  friend constexpr std::partial_ordering operator<=>(BFloat16 a, BFloat16 b) noexcept {
    return static_cast<float>(a) <=> static_cast<float>(b);
  }

 private:
  static constexpr std::uint16_t round(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u)
      return static_cast<std::uint16_t>((word >> 16 & 0x8000u) | 0x7fc0u);
    return static_cast<std::uint16_t>((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }

  std::uint16_t bits_ = 0;
};

}}  // namespace c10d::v0

namespace std {

// What floating point code asks of a type.
template <>
class numeric_limits<c10d::Float16> : public numeric_limits<float> {
  using Number = c10d::Float16;
  static constexpr Number of(unsigned bits) noexcept {
    return Number::from_bits(static_cast<uint16_t>(bits));
  }

 public:
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, min_exponent10 = -4;
  static constexpr int max_exponent = 16, max_exponent10 = 4;
  static constexpr Number min() noexcept { return of(0x0400); }
  static constexpr Number lowest() noexcept { return of(0xfbff); }
  static constexpr Number max() noexcept { return of(0x7bff); }
  static constexpr Number epsilon() noexcept { return of(0x1400); }
  static constexpr Number round_error() noexcept { return of(0x3800); }
  static constexpr Number infinity() noexcept { return of(0x7c00); }
  static constexpr Number quiet_NaN() noexcept { return of(0x7e00); }
  static constexpr Number signaling_NaN() noexcept { return of(0x7d00); }
  static constexpr Number denorm_min() noexcept { return of(0x0001); }
};

template <>
class numeric_limits<c10d::BFloat16> : public numeric_limits<float> {
  using Number = c10d::BFloat16;
  static constexpr Number of(unsigned bits) noexcept {
    return Number::from_bits(static_cast<uint16_t>(bits));
  }

 public:
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
  static constexpr Number min() noexcept { return of(0x0080); }
  static constexpr Number lowest() noexcept { return of(0xff7f); }
  static constexpr Number max() noexcept { return of(0x7f7f); }
  static constexpr Number epsilon() noexcept { return of(0x3c00); }
  static constexpr Number round_error() noexcept { return of(0x3f00); }
  static constexpr Number infinity() noexcept { return of(0x7f80); }
  static constexpr Number quiet_NaN() noexcept { return of(0x7fc0); }
  static constexpr Number signaling_NaN() noexcept { return of(0x7fa0); }
  static constexpr Number denorm_min() noexcept { return of(0x0001); }
};

}  // namespace std
