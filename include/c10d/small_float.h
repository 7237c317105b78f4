// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <compare>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "c10d/export.h"

// Floating point numbers of 16 and 8 bits as they lie in memory. They convert explicitly, compare
// and negate. To compute with them, convert them to float: ops do the same.
namespace c10d { inline namespace v0 {

// A number of a sign, an exponent and a fraction. Users write the names below.
template <int exponent_bits, int fraction_bits>
class SmallFloat {
  static constexpr int kBits = exponent_bits + fraction_bits;
  // The first magnitude that is no finite number: infinity, but of e4m3 the NaN.
  static constexpr std::uint32_t kEnd =
      exponent_bits == 4 ? 0x7f : ((1u << exponent_bits) - 1) << fraction_bits;
  static constexpr std::uint32_t kOverflow = kBits == 7 ? kEnd - 1 : kEnd;
  static constexpr std::uint32_t kSign = 1u << kBits;
  static constexpr std::uint32_t kQuietNaN = kEnd | 1u << (fraction_bits - 1);
  // From the fraction and the exponent of a float.
  static constexpr std::uint32_t kDropped = 23 - fraction_bits;
  static constexpr std::uint32_t kBias = 128 - (1u << (exponent_bits - 1));
  // Floats: the least denormal, and one whose last bit weighs as much.
  static constexpr std::uint32_t kDenormal = (kBias + 1 - fraction_bits) << 23;
  static constexpr std::uint32_t kDenormals = kDenormal + (23u << 23);

 public:
  // What holds it.
  using Bits = std::conditional_t<kBits == 7, std::uint8_t, std::uint16_t>;

  // Zero.
  constexpr SmallFloat() noexcept = default;
  // Rounds to nearest, ties to even. Every NaN becomes the quiet NaN of its sign. Overflow is
  // infinity; but numbers of 8 bits saturate, as those of CUDA and NCCL do: what is larger than the
  // largest finite number, infinity too, becomes that number.
  explicit constexpr SmallFloat(float value) noexcept : bits_(round(value)) {}
  // The number with these bits.
  static constexpr SmallFloat from_bits(Bits bits) noexcept {
    SmallFloat number;
    number.bits_ = bits;
    return number;
  }
  // The bits.
  constexpr Bits bits() const noexcept { return bits_; }
  // Exact.
  explicit constexpr operator float() const noexcept {
    if constexpr (kBias == 0) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << kDropped);
    } else {
      const std::uint32_t sign = (bits_ & kSign) << (31 - kBits);
      const std::uint32_t magnitude = bits_ & (kSign - 1);
      if (magnitude >= kEnd)  // infinity, NaN
        return std::bit_cast<float>(sign | magnitude << kDropped | 0x7f800000u);
      if (magnitude >= 1u << fraction_bits)
        return std::bit_cast<float>(sign | ((magnitude << kDropped) + (kBias << 23)));
      const float denormal = static_cast<float>(magnitude) * std::bit_cast<float>(kDenormal);
      return sign != 0 ? -denormal : denormal;
    }
  }
  // The same number with the other sign.
  constexpr SmallFloat operator-() const noexcept {
    return from_bits(static_cast<Bits>(bits_ ^ kSign));
  }
  // Compares as float does: -0 equals 0, NaN equals nothing.
  friend constexpr bool operator==(SmallFloat a, SmallFloat b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }
  // Orders as float does.
  friend constexpr std::partial_ordering operator<=>(SmallFloat a, SmallFloat b) noexcept {
    return static_cast<float>(a) <=> static_cast<float>(b);
  }

 private:
  friend class std::numeric_limits<SmallFloat>;

  static constexpr Bits round(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    std::uint32_t bits = kQuietNaN;
    if (kBias != 0 && magnitude < (kBias + 1) << 23)
      bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) +
                                          std::bit_cast<float>(kDenormals)) -
             kDenormals;
    else if (magnitude <= 0x7f800000u)
      bits = (magnitude - (kBias << 23) + (1u << (kDropped - 1)) - 1u +
              (magnitude >> kDropped & 1u)) >>
             kDropped;
    if (kBias != 0 && bits > kOverflow && magnitude <= 0x7f800000u) bits = kOverflow;
    return static_cast<Bits>(bits | (word >> (31 - kBits) & kSign));
  }

  Bits bits_ = 0;
};

// An IEEE binary16 number: sign, 5 bits of exponent, 10 of fraction. Largest finite value 65504.
using Float16 = SmallFloat<5, 10>;
// A bfloat16 number: the upper 16 bits of a float. Largest finite value about 3.39e38.
using BFloat16 = SmallFloat<8, 7>;
// E4M3 of the Open Compute Project: 4 bits of exponent, 3 of fraction. It has no infinity and one
// NaN of each sign. Largest finite value 448.
using Float8E4M3 = SmallFloat<4, 3>;
// E5M2 of the Open Compute Project: 5 bits of exponent, 2 of fraction, and all else as in IEEE
// formats. Largest finite value 57344.
using Float8E5M2 = SmallFloat<5, 2>;

}}  // namespace c10d::v0

namespace std {

// What floating point code asks of a type.
template <int exponent_bits, int fraction_bits>
class numeric_limits<c10d::SmallFloat<exponent_bits, fraction_bits>>
    : public numeric_limits<float> {
  using Number = c10d::SmallFloat<exponent_bits, fraction_bits>;
  static constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  static constexpr Number of(unsigned bits) noexcept {
    return Number::from_bits(static_cast<typename Number::Bits>(bits));
  }
  // n bits, in decimal digits.
  static constexpr int decimal(int n) noexcept { return n * 30103 / 100000; }

 public:
  static constexpr bool has_infinity = exponent_bits != 4, has_signaling_NaN = has_infinity;
  static constexpr bool is_iec559 = has_infinity;
  static constexpr int digits = fraction_bits + 1, digits10 = decimal(fraction_bits);
  static constexpr int max_digits10 = decimal(digits) + 2;
  static constexpr int min_exponent = 2 - kBias, min_exponent10 = decimal(min_exponent - 1);
  static constexpr int max_exponent = kBias + (has_infinity ? 1 : 2);
  static constexpr int max_exponent10 = decimal(max_exponent);
  static constexpr Number min() noexcept { return of(1u << fraction_bits); }
  static constexpr Number lowest() noexcept { return -max(); }
  static constexpr Number max() noexcept { return of(Number::kEnd - 1); }
  static constexpr Number epsilon() noexcept {
    return of((kBias - fraction_bits) << fraction_bits);
  }
  static constexpr Number round_error() noexcept { return of((kBias - 1) << fraction_bits); }
  // Zero where there is none.
  static constexpr Number infinity() noexcept { return of(has_infinity ? Number::kEnd : 0); }
  static constexpr Number quiet_NaN() noexcept { return of(Number::kQuietNaN); }
  // Zero where there is none.
  static constexpr Number signaling_NaN() noexcept {
    return of(has_infinity ? Number::kEnd | 1u << (fraction_bits - 2) : 0);
  }
  static constexpr Number denorm_min() noexcept { return of(1); }
};

}  // namespace std
