// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/unit/kernels/reduce_inputs.h"

namespace c10d { namespace {

// The reference: one element at a time, along the tree as the header describes it.
template <class T>
using Wide =
    std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

template <class T>
T ordered(ReduceOp::Kind kind, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) == (kind == ReduceOp::min) ? a : b;
  }
  return (a < b) == (kind == ReduceOp::min) ? a : b;
}

template <class T>
T combined(ReduceOp::Kind kind, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    if (kind == ReduceOp::bxor) return a != b;
    const bool is_and = kind == ReduceOp::prod || kind == ReduceOp::min || kind == ReduceOp::band;
    return is_and ? a && b : a || b;
  } else if constexpr (std::is_integral_v<T>) {
    const std::uint64_t ua = static_cast<std::make_unsigned_t<T>>(a);
    const std::uint64_t ub = static_cast<std::make_unsigned_t<T>>(b);
    if (kind == ReduceOp::sum) return static_cast<T>(ua + ub);
    if (kind == ReduceOp::prod) return static_cast<T>(ua * ub);
    if (kind == ReduceOp::band) return static_cast<T>(ua & ub);
    if (kind == ReduceOp::bor) return static_cast<T>(ua | ub);
    if (kind == ReduceOp::bxor) return static_cast<T>(ua ^ ub);
  } else {
    if (kind == ReduceOp::prod) return a * b;
    if (kind != ReduceOp::min && kind != ReduceOp::max) return a + b;
  }
  return ordered(kind, a, b);
}

template <class T>
T along_tree(ReduceOp::Kind kind, const T* values, std::size_t n) {
  if (n == 1) return values[0];
  const std::size_t left = std::bit_floor(n - 1);
  return combined<T>(kind, along_tree(kind, values, left),
                     along_tree(kind, values + left, n - left));
}

template <class T>
Wide<T> load(const std::byte* from) {
  if constexpr (std::is_same_v<T, bool>) {
    return *from != std::byte{0};
  } else {
    T v;
    std::memcpy(&v, from, sizeof v);
    if constexpr (std::is_same_v<T, Wide<T>>)
      return v;
    else
      return static_cast<float>(v);
  }
}

template <class T>
void store(std::byte* to, Wide<T> v) {
  if constexpr (std::is_floating_point_v<Wide<T>>)
    if (std::isnan(v)) v = std::numeric_limits<Wide<T>>::quiet_NaN();
  T result;
  if constexpr (std::is_same_v<T, Float16>)
    result = Float16(v);
  else if constexpr (std::is_same_v<T, BFloat16>)
    result = BFloat16(v);
  else
    result = v;
  std::memcpy(to, &result, sizeof result);
}

template <class T>
void reference(ReduceOp op, std::byte* out, const std::vector<const std::byte*>& in,
               std::size_t count) {
  Wide<T> values[64] = {};
  for (std::size_t e = 0; e < count; ++e) {
    for (std::size_t r = 0; r < in.size(); ++r) {
      values[r] = load<T>(in[r] + e * sizeof(T));
      if constexpr (std::is_floating_point_v<Wide<T>>)
        if (op.kind == ReduceOp::premul_sum) values[r] *= static_cast<Wide<T>>(op.factor);
    }
    auto result = along_tree<Wide<T>>(op.kind, values, in.size());
    if constexpr (std::is_floating_point_v<Wide<T>>)
      if (op.kind == ReduceOp::avg) result /= static_cast<Wide<T>>(in.size());
    store<T>(out + e * sizeof(T), result);
  }
}

void reference(DType dtype, ReduceOp op, std::byte* out, const std::vector<const std::byte*>& in,
               std::size_t count) {
  // clang-format off
  switch (dtype) {
    case DType::f64: return reference<double>(op, out, in, count);
    case DType::f32: return reference<float>(op, out, in, count);
    case DType::f16: return reference<Float16>(op, out, in, count);
    case DType::bf16: return reference<BFloat16>(op, out, in, count);
    case DType::i64: return reference<std::int64_t>(op, out, in, count);
    case DType::i32: return reference<std::int32_t>(op, out, in, count);
    case DType::i16: return reference<std::int16_t>(op, out, in, count);
    case DType::i8: return reference<std::int8_t>(op, out, in, count);
    case DType::u64: return reference<std::uint64_t>(op, out, in, count);
    case DType::u32: return reference<std::uint32_t>(op, out, in, count);
    case DType::u16: return reference<std::uint16_t>(op, out, in, count);
    case DType::u8: return reference<std::uint8_t>(op, out, in, count);
    case DType::boolean: return reference<bool>(op, out, in, count);
    case DType::c64: return reference<float>(op, out, in, 2 * count);  // part by part
    case DType::c128: return reference<double>(op, out, in, 2 * count);
    case DType::f8e4m3:
    case DType::f8e5m2: break;  // not reduced
  }
  // clang-format on
}

// Runs the variant and the reference over n rows of random input, `shift` bytes off alignment, and
// compares also the bytes around the result.
void check(KernelIsa isa, DType dtype, ReduceOp op, std::size_t n, std::size_t count,
           std::size_t shift) {
  const std::size_t size = count * size_of(dtype);
  std::vector<Bytes> rows;
  std::vector<const std::byte*> in;
  rows.reserve(n);
  for (std::size_t r = 0; r < n; ++r) {
    const Bytes values = random_bytes(dtype, count, static_cast<std::uint32_t>(r * 1000 + count));
    rows.emplace_back(size + 64);
    std::byte* at = rows.back().data() + (shift + 13 * r) % 64;
    std::copy(values.begin(), values.end(), at);
    in.push_back(at);
  }
  Bytes expected(size + 128, std::byte{0xa5});
  Bytes actual = expected;
  reference(dtype, op, expected.data() + shift, in, count);
  reduce(isa, dtype, op, actual.data() + shift, in, count);
  ASSERT_EQ(expected, actual) << name_of(isa, dtype, op) << " n " << n << " count " << count
                              << " shift " << shift;
  Bytes streamed(size + 128, std::byte{0xa5});
  reduce(isa, dtype, op, streamed.data() + shift, in, count, StorePolicy::streaming);
  stream_fence();
  ASSERT_EQ(expected, streamed) << name_of(isa, dtype, op) << " streamed, n " << n << " count "
                                << count << " shift " << shift;
}

class ReduceTest : public testing::TestWithParam<KernelIsa> {};

TEST_P(ReduceTest, EveryPairEqualsTheReference) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (const ReduceOp op : ops_of(dtype))
      for (const std::size_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 33})
        for (const std::size_t count : {0, 1, 3, 31, 64, 129, 1100})
          check(GetParam(), dtype, op, n, count, 0);
  }
}

TEST_P(ReduceTest, AlignmentDoesNotMatter) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (std::size_t shift = 0; shift < 64 && !is_float8(static_cast<DType>(d)); ++shift)
      for (const std::size_t n : {2, 3, 11})
        check(GetParam(), static_cast<DType>(d), ReduceOp::sum, n, 131, shift);
}

TEST_P(ReduceTest, AnyNumberOfElementsMayBeLast) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::u8})
    for (std::size_t count = 1; count <= 70; ++count)
      for (const std::size_t n : {1, 2, 5})
        for (const std::size_t shift : {0, 3})
          check(GetParam(), dtype, ReduceOp::sum, n, count, shift);
}

// What is loaded is stored without arithmetic between, which would quiet a NaN.
TEST_P(ReduceTest, HalfPrecisionOfOneInputIsRightForEveryValue) {
  constexpr std::size_t kCount = 0x10000;
  std::vector<std::uint16_t> all(kCount), expected(kCount), actual(kCount);
  std::iota(all.begin(), all.end(), 0);
  const std::vector in = {std::as_bytes(std::span(all)).data()};
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const ReduceOp op : ops_of(dtype)) {
      reference(dtype, op, std::as_writable_bytes(std::span(expected)).data(), in, kCount);
      reduce(GetParam(), dtype, op, std::as_writable_bytes(std::span(actual)).data(), in, kCount);
      ASSERT_EQ(expected, actual) << name_of(GetParam(), dtype, op);
    }
}

TEST_P(ReduceTest, HalfPrecisionIsRightForEveryValue) {
  constexpr std::size_t kCount = 0x10000;
  std::vector<std::uint16_t> all(kCount);
  std::iota(all.begin(), all.end(), 0);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const ReduceOp op : ops_of(dtype))
      for (const std::size_t step : {0, 1, 0x2b, 0x3ff, 0x7c01, 0x8000, 0x8001}) {
        std::vector<std::uint16_t> turned = all;
        std::rotate(turned.begin(), turned.begin() + static_cast<std::ptrdiff_t>(step),
                    turned.end());
        const std::vector in = {std::as_bytes(std::span(all)).data(),
                                std::as_bytes(std::span(turned)).data()};
        std::vector<std::uint16_t> expected(kCount), actual(kCount);
        reference(dtype, op, std::as_writable_bytes(std::span(expected)).data(), in, kCount);
        reduce(GetParam(), dtype, op, std::as_writable_bytes(std::span(actual)).data(), in, kCount);
        ASSERT_EQ(expected, actual) << name_of(GetParam(), dtype, op) << " step " << step;
      }
}

// Where rules change, and the neighbours of such values, of either sign.
template <class T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  const T half_ulp = Limits::epsilon() / 2, odd = 1 / half_ulp;
  std::vector<T> values = {0,
                           Limits::denorm_min(),
                           std::nextafter(Limits::min(), T(0)),
                           Limits::min(),
                           half_ulp,
                           std::nextafter(half_ulp, T(1)),
                           1,
                           1 + Limits::epsilon(),
                           odd,
                           std::nextafter(odd, Limits::max()),
                           std::nextafter(Limits::max(), T(0)),
                           Limits::max(),
                           Limits::infinity(),
                           Limits::quiet_NaN(),
                           Limits::signaling_NaN()};
  for (std::size_t i = 0, n = values.size(); i < n; ++i) values.push_back(-values[i]);
  return values;
}

template <class T>
void check_special_values(KernelIsa isa) {
  const std::vector<T> values = special_values<T>();
  const std::size_t n = values.size(), count = n * n;
  std::vector<std::vector<T>> rows(3, std::vector<T>(count));
  for (std::size_t i = 0; i < count; ++i) {
    rows[0][i] = values[i / n];
    rows[1][i] = values[i % n];
    rows[2][i] = values[(i + i / n * 7) % n];
  }
  std::vector<const std::byte*> in;
  for (const auto& row : rows) {
    in.push_back(reinterpret_cast<const std::byte*>(row.data()));
    for (const ReduceOp op : ops_of(dtype_of<T>)) {
      Bytes expected(count * sizeof(T)), actual = expected;
      reference(dtype_of<T>, op, expected.data(), in, count);
      reduce(isa, dtype_of<T>, op, actual.data(), in, count);
      ASSERT_EQ(expected, actual) << name_of(isa, dtype_of<T>, op) << " n " << in.size();
    }
  }
}

TEST_P(ReduceTest, EverySpecialValueMeetsEveryOther) {
  check_special_values<float>(GetParam());
  check_special_values<double>(GetParam());
}

TEST_P(ReduceTest, OutputMayBeAnyInput) {
  constexpr std::size_t kCount = 2500;
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8})
    for (const std::size_t n : {1, 2, 5, 8, 19})
      for (std::size_t place = 0; place < n; ++place) {
        std::vector<Bytes> rows;
        std::vector<const std::byte*> in;
        for (std::size_t r = 0; r < n; ++r)
          rows.push_back(random_bytes(dtype, kCount, static_cast<std::uint32_t>(r)));
        for (const Bytes& row : rows) in.push_back(row.data());
        Bytes expected(rows[0].size());
        reference(dtype, ReduceOp::sum, expected.data(), in, kCount);
        reduce(GetParam(), dtype, ReduceOp::sum, rows[place].data(), in, kCount);
        ASSERT_EQ(expected, rows[place]) << "n " << n << " place " << place;
      }
}

TEST_P(ReduceTest, AnInputIsFilledAgain) {
  constexpr std::size_t kCount = 2500, kAround = 64;
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8})
    for (const StorePolicy policy : {StorePolicy::temporal, StorePolicy::streaming})
      for (const std::size_t shift : {0, 4, 13})
        for (const std::size_t filled : {0, 1, 511, 513, 2500}) {
          const Bytes own = random_bytes(dtype, kCount, 1), next = random_bytes(dtype, kCount, 2);
          Bytes slot = random_bytes(dtype, kCount, 3);
          const std::vector in = {own.data(), static_cast<const std::byte*>(slot.data())};
          Bytes expected(slot.size() + 2 * kAround, std::byte{0xa5});
          Bytes actual = expected;
          reference(dtype, ReduceOp::sum, expected.data() + shift, in, kCount);
          Bytes left = slot;
          std::copy_n(next.begin(), filled, left.begin());
          reduce(GetParam(), dtype, ReduceOp::sum, actual.data() + shift, in, kCount, policy,
                 {.to = slot.data(), .from = next.data(), .bytes = filled});
          stream_fence();
          ASSERT_EQ(expected, actual) << name_of(GetParam(), dtype, ReduceOp::sum) << " shift "
                                      << shift << " filled " << filled;
          ASSERT_EQ(left, slot) << "shift " << shift << " filled " << filled;
        }
}

TEST(Copy, EveryShiftAndLength) {
  const Bytes from = random_bytes(DType::u8, 700, 1);
  for (const StorePolicy policy : {StorePolicy::temporal, StorePolicy::streaming})
    for (std::size_t shift = 0; shift < 64; ++shift)
      for (const std::size_t bytes : {0, 1, 63, 64, 65, 130, 500}) {
        Bytes expected(700, std::byte{0xa5});
        Bytes actual = expected;
        std::copy_n(from.begin() + 7, bytes, expected.begin() + static_cast<long>(shift));
        copy(actual.data() + shift, from.data() + 7, bytes, policy);
        stream_fence();
        ASSERT_EQ(expected, actual) << "shift " << shift << " bytes " << bytes;
        copy(actual.data(), actual.data(), bytes, policy);
        ASSERT_EQ(expected, actual);
      }
}

INSTANTIATE_TEST_SUITE_P(Isas, ReduceTest,
                         testing::ValuesIn(runnable_isas().begin(), runnable_isas().end()),
                         isa_name);

template <class T>
T reduced(ReduceOp op, std::vector<T> values) {
  std::vector<const std::byte*> in;
  for (const T& value : values) in.push_back(reinterpret_cast<const std::byte*>(&value));
  T result;
  reduce(dtype_of<T>, op, reinterpret_cast<std::byte*>(&result), in, 1);
  return result;
}

TEST(Reduce, FollowsTheDocumentedTree) {
  const float big = 0x1p24f;  // big + 1 rounds back to big
  const float a = 1, b = big, c = -big, d = 1, e = 3, f = big, g = 0.5f;
  EXPECT_EQ(reduced<float>(ReduceOp::sum, {a, b, c}), (a + b) + c);
  EXPECT_EQ(reduced<float>(ReduceOp::sum, {b, c, a}), 1);
  EXPECT_EQ(reduced<float>(ReduceOp::sum, {a, b, c, d, e}), ((a + b) + (c + d)) + e);
  EXPECT_EQ(reduced<float>(ReduceOp::sum, {a, b, c, d, e, f, g}),
            ((a + b) + (c + d)) + ((e + f) + g));
}

TEST(Reduce, DividesAndMultipliesInTheDomainOfTheTree) {
  EXPECT_EQ(reduced<float>(ReduceOp::avg, {1, 2, 4}), 7.0f / 3.0f);
  // 60000 + 60000 exceeds f16, its half does not.
  EXPECT_EQ(static_cast<float>(reduced<Float16>(ReduceOp::avg, {Float16(60000), Float16(60000)})),
            60000);
  EXPECT_EQ(static_cast<float>(
                reduced<Float16>(ReduceOp::premul(0.25), {Float16(60000), Float16(60000)})),
            30000);
}

TEST(Reduce, NotANumberPropagatesAndZerosAreOrdered) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    EXPECT_TRUE(std::isnan(reduced<float>(op, {1, nan, 3, 4})));
    EXPECT_TRUE(std::isnan(reduced<float>(op, {-nan, 1, 3})));
    EXPECT_EQ(reduced<std::int8_t>(op, {-128, 127}), op.kind == ReduceOp::min ? -128 : 127);
  }
  EXPECT_TRUE(std::signbit(reduced<float>(ReduceOp::min, {0.0f, -0.0f})));
  EXPECT_TRUE(std::signbit(reduced<float>(ReduceOp::min, {-0.0f, 0.0f})));
  EXPECT_FALSE(std::signbit(reduced<float>(ReduceOp::max, {0.0f, -0.0f})));
  EXPECT_FALSE(std::signbit(reduced<float>(ReduceOp::max, {-0.0f, 0.0f})));
}

// Denormals and what rounds.
template <class T>
std::vector<std::vector<T>> delicate(std::size_t ranks, std::size_t count) {
  std::mt19937_64 random(7);
  std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
  for (auto& input : inputs)
    for (std::size_t i = 0; i < count; ++i) {
      const double value = static_cast<double>(random() % 1'000'003);
      input[i] =
          static_cast<T>(i % 2 == 0 ? value * std::numeric_limits<T>::denorm_min() : value / 3);
    }
  return inputs;
}

template <class T>
std::vector<T> reduced_all(ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<const std::byte*> in;
  for (const auto& input : inputs) in.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> result(inputs.front().size());
  reduce(dtype_of<T>, op, reinterpret_cast<std::byte*>(result.data()), in, result.size());
  return result;
}

template <class T>
void expect_same_bits_in_other_arithmetic() {
  const auto inputs = delicate<T>(5, 1003);
  for (const ReduceOp op : {ReduceOp(ReduceOp::sum), ReduceOp(ReduceOp::avg), ReduceOp::premul(0.3),
                            ReduceOp(ReduceOp::max)}) {
    const std::vector<T> expected = reduced_all(op, inputs);
    std::vector<T> result;
    {
      const OtherArithmetic other;
      result = reduced_all(op, inputs);
      EXPECT_EQ(std::fegetround(), FE_UPWARD) << "it is the caller's again";
    }
    EXPECT_EQ(std::memcmp(result.data(), expected.data(), expected.size() * sizeof(T)), 0);
  }
}

TEST(Reduce, RoundsAlikeWhateverItsThreadIsSetTo) {
  expect_same_bits_in_other_arithmetic<float>();
  expect_same_bits_in_other_arithmetic<double>();
}

TEST(Reduce, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(reduced<float>(ReduceOp::band, {1}), std::invalid_argument);
  EXPECT_THROW(reduced<std::int32_t>(ReduceOp::avg, {1}), std::invalid_argument);
  EXPECT_THROW(reduced<std::uint8_t>(ReduceOp::premul(2), {1}), std::invalid_argument);
  EXPECT_THROW(reduced<float>(ReduceOp::sum, {}), std::invalid_argument);
  for (int k = 0; k < kReduceOpCount; ++k) {
    const auto kind = static_cast<ReduceOp::Kind>(k);
    EXPECT_THROW(reduced<Float8E4M3>(kind, {Float8E4M3(1.0f)}), std::invalid_argument);
    EXPECT_THROW(reduced<Float8E5M2>(kind, {Float8E5M2(1.0f)}), std::invalid_argument);
  }
}

}}  // namespace c10d
