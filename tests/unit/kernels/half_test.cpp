// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "c10d/small_float.h"

namespace c10d { namespace {

// What the bits mean, by the definition of the format.
template <int exponent_bits, int fraction_bits>
double meaning(std::uint16_t bits) {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - kBias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - kBias - fraction_bits);
}

struct F16 {
  using Type = Float16;
  static constexpr std::uint16_t kInfinity = 0x7c00;
  static double value(std::uint16_t bits) { return meaning<5, 10>(bits); }
  static Float16 round(float v) { return Float16(v); }
};

struct BF16 {
  using Type = BFloat16;
  static constexpr std::uint16_t kInfinity = 0x7f80;
  static double value(std::uint16_t bits) { return meaning<8, 7>(bits); }
  static BFloat16 round(float v) { return BFloat16(v); }
};

template <class Format>
class HalfTest : public testing::Test {};
using Formats = testing::Types<F16, BF16>;
TYPED_TEST_SUITE(HalfTest, Formats);

TYPED_TEST(HalfTest, EveryValueSurvivesWideningAndRounding) {
  for (unsigned i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float wide = static_cast<float>(TypeParam::Type::from_bits(bits));
    const double value = TypeParam::value(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(wide)) << i;
      EXPECT_TRUE(std::isnan(TypeParam::value(TypeParam::round(wide).bits()))) << i;
      EXPECT_EQ(TypeParam::round(wide).bits() >> 15, i >> 15);
    } else {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(static_cast<double>(wide)),
                std::bit_cast<std::uint64_t>(value))
          << i;
      ASSERT_EQ(TypeParam::round(wide).bits(), i);
    }
  }
}

TYPED_TEST(HalfTest, RoundsToNearestAndTiesToEven) {
  for (std::uint16_t low = 0; low < TypeParam::kInfinity; ++low) {
    const std::uint16_t high = low + 1;
    // Beyond the largest number the next step up decides where infinity begins.
    const double above = high < TypeParam::kInfinity
                             ? TypeParam::value(high)
                             : 2 * TypeParam::value(low) - TypeParam::value(low - 1);
    const auto middle = static_cast<float>((TypeParam::value(low) + above) / 2);
    const float less = std::nextafter(middle, 0.0f);
    const float more = std::nextafter(middle, std::numeric_limits<float>::infinity());
    ASSERT_EQ(TypeParam::round(middle).bits(), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(TypeParam::round(less).bits(), low) << low;
    ASSERT_EQ(TypeParam::round(more).bits(), high) << low;
    ASSERT_EQ(TypeParam::round(-more).bits(), high | 0x8000) << low;
  }
}

TYPED_TEST(HalfTest, ComparesAsFloatDoes) {
  using Half = typename TypeParam::Type;
  const Half one(1.0f), two(2.0f), nan(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(one < two && one <= one && two > one && one != two);
  EXPECT_TRUE(Half(0.0f) == Half(-0.0f));
  EXPECT_FALSE(nan == nan);
  EXPECT_FALSE(nan < one || nan >= one);
  EXPECT_EQ(static_cast<float>(-two), -2.0f);
}

TYPED_TEST(HalfTest, HasTheLimitsOfItsFormat) {
  using Half = typename TypeParam::Type;
  using Limits = std::numeric_limits<Half>;
  static_assert(Limits::is_specialized && Limits::is_iec559 && !Limits::is_integer);
  const auto value = [](Half number) { return TypeParam::value(number.bits()); };
  const int fraction_bits = Limits::digits - 1;
  EXPECT_EQ(value(Limits::epsilon()), std::ldexp(1.0, -fraction_bits));
  EXPECT_EQ(value(Limits::min()), std::ldexp(1.0, Limits::min_exponent - 1));
  EXPECT_EQ(value(Limits::denorm_min()), std::ldexp(1.0, Limits::min_exponent - 1 - fraction_bits));
  EXPECT_EQ(value(Limits::max()),
            std::ldexp(2 - std::ldexp(1.0, -fraction_bits), Limits::max_exponent - 1));
  EXPECT_EQ(value(Limits::lowest()), -value(Limits::max()));
  EXPECT_EQ(value(Limits::round_error()), 0.5);
  EXPECT_TRUE(std::isinf(value(Limits::infinity())));
  EXPECT_TRUE(std::isnan(value(Limits::quiet_NaN())));
  EXPECT_TRUE(std::isnan(value(Limits::signaling_NaN())));
}

// Conversions are explicit, and a compiler can do all of it.
static_assert(static_cast<float>(BFloat16(3.5f)) == 3.5f && Float16(0.1f).bits() == 0x2e66);
static_assert(Float16(1.0f) < Float16(2.0f) && sizeof(Float16) == 2 && sizeof(BFloat16) == 2);
static_assert(!std::is_convertible_v<float, Float16> && !std::is_convertible_v<Float16, float>);
static_assert(!std::is_convertible_v<int, BFloat16> && !std::is_convertible_v<BFloat16, float>);

}}  // namespace c10d
