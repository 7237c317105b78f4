// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "c10d/view.h"

namespace c10d::conformance {

// Small floating point by the definition of a binary format: slow, and apart from the library's
// conversions. Of 8 bits it saturates, and e4m3 has one NaN in place of infinity and its NaNs.
template <int exponent_bits, int fraction_bits>
struct BinaryFormat {
  static constexpr bool kIsTiny = exponent_bits + fraction_bits == 7;
  static constexpr std::uint32_t kSign = 1u << (exponent_bits + fraction_bits);
  static constexpr int kMaxExponent = (1 << (exponent_bits - 1)) - 1;
  static constexpr int kMinExponent = 1 - kMaxExponent;
  // The first magnitude that is no finite number.
  static constexpr std::uint32_t kInfinity =
      exponent_bits == 4 ? kSign - 1 : ((1u << exponent_bits) - 1) << fraction_bits;
  static constexpr std::uint32_t kOverflow = kIsTiny ? kInfinity - 1 : kInfinity;

  static float decode(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & (kSign - 1);
    const auto biased = static_cast<int>(magnitude >> fraction_bits);
    const auto fraction = static_cast<int>(magnitude & ((1 << fraction_bits) - 1));
    float value = 0;
    if (magnitude > kInfinity || (exponent_bits == 4 && magnitude == kInfinity))
      value = std::numeric_limits<float>::quiet_NaN();
    else if (magnitude == kInfinity)
      value = std::numeric_limits<float>::infinity();
    else if (biased == 0)
      value = std::ldexp(static_cast<float>(fraction), kMinExponent - fraction_bits);
    else
      value = std::ldexp(static_cast<float>((1 << fraction_bits) + fraction),
                         biased - kMaxExponent - fraction_bits);
    return (bits & kSign) != 0 ? -value : value;
  }

  // To nearest, ties to even: nearbyint() in units of the last place.
  static std::uint32_t encode(float value) {
    const std::uint32_t sign = std::signbit(value) ? kSign : 0;
    if (std::isnan(value)) return kSign - 1;
    if (std::isinf(value)) return sign | kOverflow;
    if (value == 0) return sign;
    const double magnitude = std::fabs(static_cast<double>(value));
    int exponent = std::max(std::ilogb(magnitude), kMinExponent);
    auto units =
        static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
    if (units == 2u << fraction_bits) {
      units /= 2;
      ++exponent;
    }
    const bool normal = units >> fraction_bits != 0;
    const auto biased = normal ? static_cast<std::uint32_t>(exponent - kMinExponent + 1) : 0u;
    const std::uint32_t fraction = units & ((1u << fraction_bits) - 1);
    return sign | std::min(biased << fraction_bits | fraction, kOverflow);
  }
};

template <class T>
struct FormatOf;
template <>
struct FormatOf<Float16> : BinaryFormat<5, 10> {};
template <>
struct FormatOf<BFloat16> : BinaryFormat<8, 7> {};
template <>
struct FormatOf<Float8E4M3> : BinaryFormat<4, 3> {};
template <>
struct FormatOf<Float8E5M2> : BinaryFormat<5, 2> {};

template <class T>
float decode(T v) {
  return FormatOf<T>::decode(v.bits());
}
template <class T>
void encode(float value, T& to) {
  to = T::from_bits(static_cast<decltype(to.bits())>(FormatOf<T>::encode(value)));
}

}  // namespace c10d::conformance
