// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "c10d/view.h"

namespace c10d::conformance {

// f16 and bf16 by the definition of a binary format: slow, and apart from the library's
// conversions.
template <int exponent_bits, int fraction_bits>
struct BinaryFormat {
  static constexpr int kMaxExponent = (1 << (exponent_bits - 1)) - 1;
  static constexpr int kMinExponent = 1 - kMaxExponent;
  static constexpr std::uint32_t kInfinity = ((1u << exponent_bits) - 1) << fraction_bits;

  static float decode(std::uint16_t bits) {
    const std::uint32_t magnitude = bits & 0x7fff;
    const auto biased = static_cast<int>(magnitude >> fraction_bits);
    const auto fraction = static_cast<int>(magnitude & ((1 << fraction_bits) - 1));
    float value = 0;
    if (magnitude > kInfinity)
      value = std::numeric_limits<float>::quiet_NaN();
    else if (magnitude == kInfinity)
      value = std::numeric_limits<float>::infinity();
    else if (biased == 0)
      value = std::ldexp(static_cast<float>(fraction), kMinExponent - fraction_bits);
    else
      value = std::ldexp(static_cast<float>((1 << fraction_bits) + fraction),
                         biased - kMaxExponent - fraction_bits);
    return bits >> 15 != 0 ? -value : value;
  }

  // To nearest, ties to even: nearbyint() in units of the last place.
  static std::uint16_t encode(float value) {
    const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return static_cast<std::uint16_t>(kInfinity + 1);
    if (std::isinf(value)) return static_cast<std::uint16_t>(sign | kInfinity);
    if (value == 0) return static_cast<std::uint16_t>(sign);
    const double magnitude = std::fabs(static_cast<double>(value));
    int exponent = std::max(std::ilogb(magnitude), kMinExponent);
    auto units =
        static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
    if (units == 2u << fraction_bits) {
      units /= 2;
      ++exponent;
    }
    if (exponent > kMaxExponent) return static_cast<std::uint16_t>(sign | kInfinity);
    const bool normal = units >> fraction_bits != 0;
    const auto biased = normal ? static_cast<std::uint32_t>(exponent - kMinExponent + 1) : 0u;
    const std::uint32_t fraction = units & ((1u << fraction_bits) - 1);
    return static_cast<std::uint16_t>(sign | biased << fraction_bits | fraction);
  }
};

inline float decode(Float16 v) { return BinaryFormat<5, 10>::decode(v.bits()); }
inline float decode(BFloat16 v) { return BinaryFormat<8, 7>::decode(v.bits()); }
inline void encode(float value, Float16& to) {
  to = Float16::from_bits(BinaryFormat<5, 10>::encode(value));
}
inline void encode(float value, BFloat16& to) {
  to = BFloat16::from_bits(BinaryFormat<8, 7>::encode(value));
}

}  // namespace c10d::conformance
