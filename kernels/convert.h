// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include "c10d/tensor.h"

namespace c10d { inline namespace v0 {

// Exact.
inline float to_float(BFloat16 v) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16);
}

// Exact.
inline float to_float(Float16 v) noexcept {
  const std::uint32_t sign = (v.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = v.bits & 0x7fffu;
  if (magnitude >= 0x7c00)
    return std::bit_cast<float>(sign | magnitude << 13 | 0x7f800000u);  // infinity, NaN
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float denormal = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -denormal : denormal;
}

// Rounds to nearest even. Overflow is infinity; every NaN becomes the quiet NaN of its sign.
inline BFloat16 to_bfloat16(float v) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(v);
  if (v != v) return {static_cast<std::uint16_t>((word >> 16 & 0x8000u) | 0x7fc0u)};
  return {static_cast<std::uint16_t>((word + 0x7fffu + (word >> 16 & 1u)) >> 16)};
}

// As to_bfloat16.
inline Float16 to_float16(float v) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(v);
  const std::uint32_t magnitude = word & 0x7fffffffu;
  std::uint32_t half = 0x7e00;
  if (magnitude < 0x38800000u)  // the last bit of 0.5 weighs as much as that of an f16 denormal
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  else if (magnitude < 0x477ff000u)
    half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  else if (magnitude <= 0x7f800000u)
    half = 0x7c00;
  return {static_cast<std::uint16_t>(half | (word >> 16 & 0x8000u))};
}

}}  // namespace c10d::v0
