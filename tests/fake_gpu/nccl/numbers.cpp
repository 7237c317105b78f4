// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/nccl/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>

namespace fake_nccl {
namespace {

// A float of few bits.
struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity, saturates;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double largest() const {
    const int top = has_infinity ? bias() : bias() + 1;
    const int steps = (2 << mantissa_bits) - (has_infinity ? 1 : 2);
    return std::ldexp(steps, top - mantissa_bits);
  }
  unsigned nan() const { return (1U << (exponent_bits + mantissa_bits)) - 1; }
  unsigned infinity() const { return ((1U << exponent_bits) - 1) << mantissa_bits; }
};
constexpr Format kF16{5, 10, true, false}, kBf16{8, 7, true, false}, kE4m3{4, 3, false, true},
    kE5m2{5, 2, true, true};

double decode(const Format& format, unsigned bits) {
  const int m = format.mantissa_bits;
  const unsigned fraction = bits & ((1U << m) - 1);
  const unsigned exponent = (bits >> m) & ((1U << format.exponent_bits) - 1);
  const bool is_negative = (bits >> (m + format.exponent_bits) & 1) != 0;
  double value = 0;
  if (format.has_infinity ? exponent == (1U << format.exponent_bits) - 1
                          : (bits & format.nan()) == format.nan()) {
    value = format.has_infinity && fraction == 0 ? std::numeric_limits<double>::infinity()
                                                 : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - format.bias() - m);
  } else {
    value = std::ldexp(fraction + (1U << m), static_cast<int>(exponent) - format.bias() - m);
  }
  return is_negative ? -value : value;
}

// To the nearest, ties to even.
unsigned encode(const Format& format, double value) {
  const int m = format.mantissa_bits;
  if (std::isnan(value)) return format.nan();
  const unsigned sign = std::signbit(value) ? 1U << (m + format.exponent_bits) : 0;
  const double size = std::fabs(value);
  if (size == 0) return sign;
  int exponent = 1 - format.bias();
  if (std::isfinite(size)) exponent = std::max(exponent, std::ilogb(size));
  double steps = std::isfinite(size) ? std::nearbyint(std::ldexp(size, m - exponent)) : 0;
  if (!std::isfinite(size) || std::ldexp(steps, exponent - m) > format.largest()) {
    return sign | (format.saturates ? format.has_infinity ? format.infinity() - 1 : format.nan() - 1
                                    : format.infinity());
  }
  if (steps == (2 << m)) {
    steps /= 2;
    ++exponent;
  }
  const auto whole = static_cast<unsigned>(steps);
  if (whole < (1U << m)) return sign | whole;
  return sign | (static_cast<unsigned>(exponent + format.bias()) << m) | (whole - (1U << m));
}

// A type of NCCL: how it lies in memory, and in what it computes.
template <class T>
struct Plain {
  using Stored = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};
template <>
struct Plain<float> {
  using Stored = float;
  static float load(float value) { return value; }
  static float store(float value) {
    return std::isnan(value) ? std::bit_cast<float>(0x7fffffffU) : value;
  }
};
template <class Bits, const Format& kFormat>
struct Small {
  using Stored = Bits;
  static double load(Bits bits) { return decode(kFormat, bits); }
  static Bits store(double value) { return static_cast<Bits>(encode(kFormat, value)); }
};
// Computes in f16, then rounds again.
template <const Format& kFormat>
struct Tiny : Small<std::uint8_t, kFormat> {
  static std::uint8_t store(double value) {
    return static_cast<std::uint8_t>(encode(kFormat, decode(kF16, encode(kF16, value))));
  }
};

template <class F>
void of_type(nccl::DataType dtype, F run) {
  switch (dtype) {
    case nccl::kInt8:
      return run(Plain<std::int8_t>());
    case nccl::kUint8:
      return run(Plain<std::uint8_t>());
    case nccl::kInt32:
      return run(Plain<std::int32_t>());
    case nccl::kUint32:
      return run(Plain<std::uint32_t>());
    case nccl::kInt64:
      return run(Plain<std::int64_t>());
    case nccl::kUint64:
      return run(Plain<std::uint64_t>());
    case nccl::kFloat16:
      return run(Small<std::uint16_t, kF16>());
    case nccl::kFloat32:
      return run(Plain<float>());
    case nccl::kFloat64:
      return run(Plain<double>());
    case nccl::kBfloat16:
      return run(Small<std::uint16_t, kBf16>());
    case nccl::kFloat8e4m3:
      return run(Tiny<kE4m3>());
    case nccl::kFloat8e5m2:
      return run(Tiny<kE5m2>());
  }
}

bool is_integer(nccl::DataType dtype) { return dtype <= nccl::kUint64; }

// Integers wrap.
template <class T>
T wrapped(std::uint64_t value) {
  return static_cast<T>(value);
}

template <class T>
T product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return wrapped<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

template <class T>
T extreme(bool is_max, T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == 0 && b == 0) return std::signbit(a) == is_max ? b : a;
  }
  return is_max ? std::max(a, b) : std::min(a, b);
}

template <class T>
T combined(const Reduction& how, T sum, T value, T factor) {
  switch (how.op) {
    case nccl::kProd:
      return product(sum, value);
    case nccl::kMax:
      return extreme(true, sum, value);
    case nccl::kMin:
      return extreme(false, sum, value);
    case nccl::kSum:
    case nccl::kAvg:
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    return wrapped<T>(static_cast<std::uint64_t>(product(value, factor)) +
                      static_cast<std::uint64_t>(sum));
  } else {
    return how.op == nccl::kSum ? sum + value : std::fma(value, factor, sum);
  }
}

bool has_factor(const Reduction& how) {
  return how.op == kPreMulSum || (how.op == nccl::kAvg && !is_integer(how.dtype));
}

// Calls run(type, factor) with the factor in what the type computes in; 1 if there is none.
template <class F>
void with_factor(const Reduction& how, Factor factor, F run) {
  of_type(how.dtype, [&](auto type) {
    using Stored = typename decltype(type)::Stored;
    Stored stored;
    std::memcpy(&stored, &factor, sizeof stored);
    using Computed = decltype(type.load(stored));
    run(type, has_factor(how) ? type.load(stored) : Computed{1});
  });
}

template <class Type>
typename Type::Stored at(const std::byte* values, std::size_t i) {
  typename Type::Stored value;
  std::memcpy(&value, values + i * sizeof value, sizeof value);
  return value;
}
template <class Stored>
void put(std::byte* values, std::size_t i, Stored value) {
  std::memcpy(values + i * sizeof value, &value, sizeof value);
}

}  // namespace

std::size_t size_of(nccl::DataType dtype) {
  std::size_t size = 0;
  of_type(dtype, [&](auto type) { size = sizeof(typename decltype(type)::Stored); });
  return size;
}

Factor one_over(nccl::DataType dtype, int ranks) {
  Factor factor = 0;
  of_type(dtype, [&](auto type) {
    if constexpr (!std::is_integral_v<decltype(type.load({}))>) {
      using Computed = decltype(type.load({}));
      const double value = 1.0 / ranks;  // the small types take it from a float
      const auto stored =
          type.store(dtype == nccl::kFloat64 ? static_cast<Computed>(value)
                                             : static_cast<Computed>(static_cast<float>(value)));
      std::memcpy(&factor, &stored, sizeof stored);
    }
  });
  return factor;
}

void start(const Reduction& how, std::byte* sum, const std::byte* values, std::size_t count,
           Factor factor) {
  if (!has_factor(how)) {
    std::memcpy(sum, values, count * size_of(how.dtype));
    return;
  }
  with_factor(how, factor, [&](auto type, auto by) {
    using Type = decltype(type);
    for (std::size_t i = 0; i < count; ++i) {
      put(sum, i, type.store(product(type.load(at<Type>(values, i)), by)));
    }
  });
}

void accumulate(const Reduction& how, std::byte* sum, const std::byte* values, std::size_t count,
                Factor factor) {
  with_factor(how, factor, [&](auto type, auto by) {
    using Type = decltype(type);
    for (std::size_t i = 0; i < count; ++i) {
      put(sum, i,
          type.store(
              combined(how, type.load(at<Type>(sum, i)), type.load(at<Type>(values, i)), by)));
    }
  });
}

void finish(const Reduction& how, std::byte* sum, std::size_t count) {
  if (how.op != nccl::kAvg || !is_integer(how.dtype)) return;
  of_type(how.dtype, [&](auto type) {
    using Type = decltype(type);
    if constexpr (std::is_integral_v<typename Type::Stored>) {
      using Stored = typename Type::Stored;
      for (std::size_t i = 0; i < count; ++i) {
        const Stored value = at<Type>(sum, i);
        if constexpr (std::is_signed_v<Stored>) {
          put(sum, i, static_cast<Stored>(std::int64_t{value} / how.ranks));
        } else {
          put(sum, i, static_cast<Stored>(value / static_cast<std::uint64_t>(how.ranks)));
        }
      }
    }
  });
}

std::vector<int> order_of(int ranks, int channel, std::uint64_t seed, std::uint64_t piece) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.rbegin(), order.rend(), 0);
  if (seed == 1) {
    if (channel == 1 && ranks > 2) std::swap(order[order.size() - 2], order[order.size() - 1]);
    return order;
  }
  std::mt19937_64 random(seed * 1'000'003 + 2 * piece + static_cast<std::uint64_t>(channel));
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random() % i]);
  }
  return order;
}

}  // namespace fake_nccl
