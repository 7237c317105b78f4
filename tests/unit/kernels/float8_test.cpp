// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "c10d/small_float.h"

namespace c10d { namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What the bits mean, by the definition of the format.
double meaning(int fraction_bits, int bias, unsigned bits) {
  const int exponent = static_cast<int>(bits & 0x7f) >> fraction_bits;
  const int fraction = static_cast<int>(bits) & ((1 << fraction_bits) - 1);
  const double sign = bits >> 7 != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

struct E4M3 {
  using Type = Float8E4M3;
  static constexpr unsigned kLargest = 0x7e, kQuietNaN = 0x7f;
  static double value(unsigned bits) { return (bits & 0x7f) == 0x7f ? kNan : meaning(3, 7, bits); }
};
struct E5M2 {
  using Type = Float8E5M2;
  static constexpr unsigned kLargest = 0x7b, kQuietNaN = 0x7e;
  static double value(unsigned bits) {
    if ((bits & 0x7f) > 0x7c) return kNan;
    if ((bits & 0x7f) == 0x7c) return bits >> 7 != 0 ? -kInfinity : kInfinity;
    return meaning(2, 15, bits);
  }
};

template <class Format>
class Float8Test : public testing::Test {
 public:
  static unsigned round(float value) { return typename Format::Type(value).bits(); }
};
using Formats = testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Float8Test, Formats);

TYPED_TEST(Float8Test, EveryValueSurvivesWideningAndRounding) {
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    const auto number = TypeParam::Type::from_bits(static_cast<std::uint8_t>(bits));
    const float wide = static_cast<float>(number);
    const double value = TypeParam::value(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_EQ(std::signbit(wide), bits >> 7 != 0) << bits;
      EXPECT_EQ(this->round(wide), TypeParam::kQuietNaN | (bits & 0x80)) << bits;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(static_cast<double>(wide)),
                std::bit_cast<std::uint64_t>(value))
          << bits;
      EXPECT_EQ(this->round(wide), std::isinf(value) ? TypeParam::kLargest | (bits & 0x80) : bits);
    }
    EXPECT_EQ((-number).bits(), bits ^ 0x80);
  }
}

// Every point in the middle of two neighbours, and the floats beside it.
TYPED_TEST(Float8Test, RoundsToNearestAndTiesToEven) {
  for (unsigned low = 0; low < TypeParam::kLargest; ++low) {
    const unsigned high = low + 1;
    const auto middle = static_cast<float>((TypeParam::value(low) + TypeParam::value(high)) / 2);
    const float less = std::nextafter(middle, 0.0f);
    const float more = std::nextafter(middle, std::numeric_limits<float>::infinity());
    EXPECT_EQ(this->round(middle), low % 2 == 0 ? low : high) << low;
    EXPECT_EQ(this->round(-middle), (low % 2 == 0 ? low : high) | 0x80) << low;
    EXPECT_EQ(this->round(less), low) << low;
    EXPECT_EQ(this->round(more), high) << low;
    EXPECT_EQ(this->round(-more), high | 0x80) << low;
  }
}

TYPED_TEST(Float8Test, SaturatesWhereItOverflows) {
  const auto largest = static_cast<float>(TypeParam::value(TypeParam::kLargest));
  for (const float value :
       {std::nextafter(largest, std::numeric_limits<float>::infinity()), largest * 1.0625f,
        largest * 1.125f, largest * 2, largest * largest, std::numeric_limits<float>::max(),
        std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(this->round(value), TypeParam::kLargest) << value;
    EXPECT_EQ(this->round(-value), TypeParam::kLargest | 0x80) << value;
  }
  EXPECT_EQ(this->round(std::numeric_limits<float>::denorm_min()), 0u);
  EXPECT_EQ(this->round(-std::numeric_limits<float>::denorm_min()), 0x80u);
}

TYPED_TEST(Float8Test, ComparesAsFloatDoes) {
  using Number = typename TypeParam::Type;
  const Number one(1.0f), two(2.0f), nan(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(one < two && one <= one && two > one && one != two);
  EXPECT_TRUE(Number(0.0f) == Number(-0.0f));
  EXPECT_FALSE(nan == nan);
  EXPECT_FALSE(nan < one || nan >= one);
}

TYPED_TEST(Float8Test, HasTheLimitsOfItsFormat) {
  using Limits = std::numeric_limits<typename TypeParam::Type>;
  static_assert(Limits::is_specialized && !Limits::is_integer);
  const auto value = [](auto number) { return TypeParam::value(number.bits()); };
  const int fraction_bits = Limits::digits - 1;
  EXPECT_EQ(value(Limits::epsilon()), std::ldexp(1.0, -fraction_bits));
  EXPECT_EQ(value(Limits::min()), std::ldexp(1.0, Limits::min_exponent - 1));
  EXPECT_EQ(value(Limits::denorm_min()), std::ldexp(1.0, Limits::min_exponent - 1 - fraction_bits));
  EXPECT_EQ(std::ilogb(value(Limits::max())), Limits::max_exponent - 1);
  EXPECT_EQ(Limits::max().bits(), TypeParam::kLargest);
  EXPECT_EQ(value(Limits::lowest()), -value(Limits::max()));
  EXPECT_LE(std::pow(10.0, Limits::max_exponent10), value(Limits::max()));
  EXPECT_GT(std::pow(10.0, Limits::max_exponent10 + 1), value(Limits::max()));
  EXPECT_GE(std::pow(10.0, Limits::min_exponent10), value(Limits::min()));
  EXPECT_LT(std::pow(10.0, Limits::min_exponent10 - 1), value(Limits::min()));
  EXPECT_EQ(value(Limits::round_error()), 0.5);
  EXPECT_EQ(std::isinf(value(Limits::infinity())), Limits::has_infinity);
  EXPECT_TRUE(std::isnan(value(Limits::quiet_NaN())));
  EXPECT_EQ(std::isnan(value(Limits::signaling_NaN())), Limits::has_signaling_NaN);
}

// Conversions are explicit, and a compiler can do all of it.
static_assert(static_cast<float>(Float8E4M3(3.5f)) == 3.5f && Float8E4M3(0.1f).bits() == 0x1d);
static_assert(static_cast<float>(Float8E5M2(3.5f)) == 3.5f && Float8E5M2(0.1f).bits() == 0x2e);
static_assert(Float8E4M3(1.0f) < Float8E4M3(2.0f) && sizeof(Float8E4M3) == 1);
static_assert(Float8E5M2(0x1p-16f).bits() == 1 && sizeof(Float8E5M2) == 1);
static_assert(!std::is_convertible_v<float, Float8E4M3> &&
              !std::is_convertible_v<Float8E4M3, float>);

}}  // namespace c10d
