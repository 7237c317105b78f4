// SPDX-License-Identifier: BSD-3-Clause
#include "tests/conformance/numbers.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/conformance/small_float.h"

namespace c10d::conformance {
namespace {

template <class T>
constexpr bool is_tiny = std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
template <class T>
constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16> || is_tiny<T>;
// The domain in which elements of type T combine.
template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

template <class T>
Wide<T> widen(T v) {
  if constexpr (is_half<T>)
    return decode(v);
  else
    return v;
}

template <class T>
T narrow(Wide<T> v) {
  if constexpr (is_half<T>) {
    T half;
    encode(v, half);
    return half;
  } else {
    return v;
  }
}

// The largest whole number below which T holds all: sums of a few exceed it, but are exact in its
// domain. Of numbers that round at every step those of kMostRanks do not.
constexpr int kMostRanks = 8;
template <class T>
constexpr int exact_limit(bool rounds_often) {
  if constexpr (std::is_same_v<T, Float16>) return rounds_often ? 2048 / kMostRanks : 2048;
  if constexpr (std::is_same_v<T, BFloat16>) return rounds_often ? 256 / kMostRanks : 256;
  if constexpr (std::is_same_v<T, Float8E4M3>) return 16 / kMostRanks;  // they always do
  if constexpr (std::is_same_v<T, Float8E5M2>) return 8 / kMostRanks;
  return 1 << 20;
}

template <class T>
T hard_float(std::uint64_t random) {
  const double sign = random & 1 ? -1 : 1;
  switch (random >> 1 & 63) {
    // clang-format off
    case 0: return narrow<T>(std::numeric_limits<Wide<T>>::quiet_NaN());
    case 1: return narrow<T>(static_cast<Wide<T>>(sign) * std::numeric_limits<Wide<T>>::infinity());
    case 2: case 3: return narrow<T>(static_cast<Wide<T>>(sign * 0.0));
    case 4: return narrow<T>(static_cast<Wide<T>>(sign * (is_half<T> ? 0x1p-24 : 0x1p-140)));
    // clang-format on
    default:
      const int exponent = static_cast<int>(random >> 7 & 15) - 60;
      return narrow<T>(static_cast<Wide<T>>(sign * std::ldexp(random >> 11 | 1, exponent)));
  }
}

template <class T>
T number(const Numbers& n, int rank, std::size_t index) {
  const std::uint64_t random = mix(n.seed + mix(index * 64 + static_cast<std::size_t>(rank)));
  if constexpr (std::is_same_v<T, bool>) {
    return (random >> 32 & 3) != 0;  // mostly true: else "and" of many ranks is always false
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random);
  } else {
    if (n.values == Values::hard) return hard_float<T>(random);
    const int limit = n.op.kind != ReduceOp::prod ? exact_limit<T>(n.rounds_often)
                      : is_tiny<T> || (is_half<T> && n.rounds_often) ? 2
                                                                     : 3;
    const int whole = 1 + static_cast<int>((random >> 32) % static_cast<unsigned>(limit));
    return narrow<T>(static_cast<Wide<T>>(random & 1 ? -whole : whole));
  }
}

template <class W>
W lesser_or_greater(bool lesser, W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<W>::quiet_NaN();
    if (a == b) return std::signbit(a) == lesser ? a : b;
  }
  return (a < b) == lesser ? a : b;
}

template <class W>
W combine(ReduceOp::Kind kind, W a, W b) {
  using Kind = ReduceOp::Kind;
  if constexpr (std::is_same_v<W, bool>) {
    if (kind == Kind::bxor) return a != b;
    return kind == Kind::sum || kind == Kind::max || kind == Kind::bor ? a || b : a && b;
  } else {
    if (kind == Kind::min || kind == Kind::max) return lesser_or_greater(kind == Kind::min, a, b);
    if constexpr (std::is_integral_v<W>) {
      using Unsigned = std::make_unsigned_t<W>;
      const std::uint64_t x = static_cast<Unsigned>(a), y = static_cast<Unsigned>(b);
      if (kind == Kind::prod) return static_cast<W>(x * y);
      if (kind == Kind::band) return static_cast<W>(x & y);
      if (kind == Kind::bor) return static_cast<W>(x | y);
      if (kind == Kind::bxor) return static_cast<W>(x ^ y);
      return static_cast<W>(x + y);
    } else {
      return kind == Kind::prod ? a * b : a + b;
    }
  }
}

// The documented tree: the left part holds the largest power of two of ranks that leaves some to
// the right.
template <class W>
W along_tree(ReduceOp::Kind kind, const W* values, std::size_t n) {
  if (n == 1) return values[0];
  const std::size_t left = std::bit_floor(n - 1);
  return combine<W>(kind, along_tree(kind, values, left),
                    along_tree(kind, values + left, n - left));
}

template <class T>
T reduced(const Numbers& n, int ranks, std::size_t index) {
  Wide<T> values[64];
  for (int r = 0; r < ranks; ++r) {
    values[r] = widen(number<T>(n, r, index));
    if constexpr (std::is_floating_point_v<Wide<T>>)
      if (n.op.kind == ReduceOp::premul_sum) values[r] *= static_cast<Wide<T>>(n.op.factor);
  }
  Wide<T> result = along_tree(n.op.kind, values, static_cast<std::size_t>(ranks));
  if constexpr (std::is_floating_point_v<Wide<T>>)
    if (n.op.kind == ReduceOp::avg) result /= static_cast<Wide<T>>(ranks);
  return narrow<T>(result);
}

// Calls f with a value of the C++ type of `dtype`, which is not complex.
template <class F>
auto with_type(DType dtype, F&& f) {
  // clang-format off
  switch (dtype) {
    case DType::f64: return f(double{});
    case DType::f32: return f(float{});
    case DType::f16: return f(Float16{});
    case DType::bf16: return f(BFloat16{});
    case DType::f8e4m3: return f(Float8E4M3{});
    case DType::f8e5m2: return f(Float8E5M2{});
    case DType::i64: return f(std::int64_t{});
    case DType::i32: return f(std::int32_t{});
    case DType::i16: return f(std::int16_t{});
    case DType::i8: return f(std::int8_t{});
    case DType::u64: return f(std::uint64_t{});
    case DType::u32: return f(std::uint32_t{});
    case DType::u16: return f(std::uint16_t{});
    case DType::u8: return f(std::uint8_t{});
    case DType::boolean: case DType::c64: case DType::c128: break;
  }
  // clang-format on
  return f(bool{});
}

// A complex number is two numbers, each reduced by itself.
Numbers parts_of(Numbers numbers) {
  numbers.dtype = real_of(numbers.dtype);
  return numbers;
}

template <class T>
std::string text(T v) {
  if constexpr (std::is_same_v<T, bool>)
    return v ? "true" : "false";
  else
    return std::to_string(widen(v));
}

}  // namespace

std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

void fill(const Numbers& numbers, int rank, std::size_t first, std::byte* to, std::size_t count) {
  if (is_complex(numbers.dtype)) return fill(parts_of(numbers), rank, 2 * first, to, 2 * count);
  with_type(numbers.dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      const T v = number<T>(numbers, rank, first + i);
      std::memcpy(to + i * sizeof v, &v, sizeof v);
    }
  });
}

void fill_reduced(const Numbers& numbers, int ranks, std::size_t first, std::byte* to,
                  std::size_t count) {
  if (is_complex(numbers.dtype))
    return fill_reduced(parts_of(numbers), ranks, 2 * first, to, 2 * count);
  with_type(numbers.dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      const T v = reduced<T>(numbers, ranks, first + i);
      std::memcpy(to + i * sizeof v, &v, sizeof v);
    }
  });
}

std::string difference(DType dtype, const std::byte* expected, const std::byte* actual,
                       std::size_t count) {
  if (is_complex(dtype)) return difference(real_of(dtype), expected, actual, 2 * count);
  if (count == 0 || std::memcmp(expected, actual, count * size_of(dtype)) == 0) return {};
  return with_type(dtype, [&]<class T>(T) -> std::string {
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(expected + i * sizeof(T), actual + i * sizeof(T), sizeof(T)) == 0) continue;
      T e, a;
      std::memcpy(&e, expected + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, bool>) {
        const auto byte = std::to_integer<int>(actual[i]);
        return "element " + std::to_string(i) + " is byte " + std::to_string(byte) + ", not " +
               text(e);
      } else {
        std::memcpy(&a, actual + i * sizeof(T), sizeof(T));
        if (widen(e) != widen(e) && widen(a) != widen(a)) continue;
        return "element " + std::to_string(i) + " is " + text(a) + ", not " + text(e);
      }
    }
    return {};
  });
}

}  // namespace c10d::conformance
