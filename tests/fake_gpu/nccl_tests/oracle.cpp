// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/nccl_tests/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>

namespace nccl = c10d::nccl;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The positive values of a small type: value of each pattern of bits.
struct Small {
  int exponents, fractions;
  bool is_e4m3 = false, saturates = false;

  double value(unsigned bits) const {
    const int bias = (1 << (exponents - 1)) - 1;
    const unsigned fraction = bits % (1U << fractions), exponent = bits >> fractions;
    const bool is_top = exponent == (1U << exponents) - 1;
    if (is_e4m3 ? is_top && fraction == 7 : is_top && fraction != 0) return kNan;
    if (is_top && !is_e4m3) return kInfinity;
    const double scale = std::pow(2.0, (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias);
    return scale * ((exponent == 0 ? 0 : 1) + fraction * std::pow(2.0, -fractions));
  }
  unsigned sign() const { return 1U << (exponents + fractions); }
  std::vector<double> finite() const {
    std::vector<double> all;
    for (unsigned bits = 0; bits < sign() && std::isfinite(value(bits)); ++bits) {
      all.push_back(value(bits));
    }
    return all;
  }
};
const Small kHalf{5, 10}, kBrain{8, 7}, kE4m3{4, 3, true, true}, kE5m2{5, 2, false, true};

const Small* small_of(nccl::DataType dtype) {
  switch (static_cast<int>(dtype)) {
    case nccl::kFloat16:
      return &kHalf;
    case nccl::kBfloat16:
      return &kBrain;
    case nccl::kFloat8e4m3:
      return &kE4m3;
    case nccl::kFloat8e5m2:
      return &kE5m2;
    default:
      return nullptr;
  }
}

unsigned nearest(const Small& type, double value) {
  static const std::map<const Small*, std::vector<double>> lists = {{&kHalf, kHalf.finite()},
                                                                    {&kBrain, kBrain.finite()},
                                                                    {&kE4m3, kE4m3.finite()},
                                                                    {&kE5m2, kE5m2.finite()}};
  const std::vector<double>& all = lists.at(&type);
  if (std::isnan(value)) return type.sign() - 1;
  const unsigned sign = std::signbit(value) ? type.sign() : 0;
  const double size = std::fabs(value), top = all.back();
  const double beyond = top + (top - all[all.size() - 2]) / 2;  // from here on it is infinity
  if (type.saturates ? size > top : size >= beyond) {
    const auto last = static_cast<unsigned>(all.size() - 1);
    return sign | (type.saturates ? last : last + 1);
  }
  const auto above = std::lower_bound(all.begin(), all.end(), size);
  auto place = static_cast<unsigned>(above - all.begin());
  if (above == all.end()) return sign | (place - 1);
  if (*above != size) {
    const double up = *above - size, down = size - all[place - 1];
    if (down < up || (down == up && (place - 1) % 2 == 0)) --place;
  }
  return sign | place;
}

bool is_float(nccl::DataType dtype) { return dtype >= nccl::kFloat16; }

double double_of(nccl::DataType dtype, std::uint64_t word) {
  if (const Small* type = small_of(dtype)) {
    const auto bits = static_cast<unsigned>(word);
    return bits & type->sign() ? -type->value(bits & ~type->sign()) : type->value(bits);
  }
  if (dtype == nccl::kFloat32) return std::bit_cast<float>(static_cast<std::uint32_t>(word));
  return std::bit_cast<double>(word);
}

std::uint64_t masked(nccl::DataType dtype, std::uint64_t word) {
  const std::size_t bits = 8 * bytes_of(dtype);
  return bits == 64 ? word : word & ((std::uint64_t{1} << bits) - 1);
}

std::int64_t signed_of(nccl::DataType dtype, std::uint64_t word) {
  const std::size_t unused = 64 - 8 * bytes_of(dtype);
  return static_cast<std::int64_t>(word << unused) >> unused;
}
bool is_signed(nccl::DataType dtype) {
  return dtype == nccl::kInt8 || dtype == nccl::kInt32 || dtype == nccl::kInt64;
}

std::uint64_t integer(nccl::DataType dtype, nccl::RedOp op, std::uint64_t a, std::uint64_t b,
                      std::uint64_t factor) {
  const bool is_less = is_signed(dtype) ? signed_of(dtype, a) < signed_of(dtype, b)
                                        : masked(dtype, a) < masked(dtype, b);
  if (op == nccl::kMax) return is_less ? b : a;
  if (op == nccl::kMin) return is_less ? a : b;
  if (op == nccl::kProd) return a * b;
  return op == kProducts ? a + b * factor : a + b;
}

double floating(nccl::RedOp op, double a, double b, double factor) {
  if (op == nccl::kMax || op == nccl::kMin) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
    if (a == b) return std::signbit(a) == (op == nccl::kMin) ? a : b;
    return (a < b) == (op == nccl::kMax) ? b : a;
  }
  if (op == nccl::kProd) return a * b;
  return op == nccl::kSum ? a + b : std::fma(b, factor, a);
}

}  // namespace

std::size_t bytes_of(nccl::DataType dtype) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[dtype];
}

std::uint64_t word_of(nccl::DataType dtype, double value) {
  if (const Small* type = small_of(dtype)) {
    const bool is_tiny = type->saturates;  // computes in f16
    if (is_tiny) value = double_of(nccl::kFloat16, nearest(kHalf, value));
    return nearest(*type, value);
  }
  if (dtype == nccl::kFloat32) {
    if (std::isnan(value)) return 0x7fffffff;
    return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
  if (dtype == nccl::kFloat64) return std::bit_cast<std::uint64_t>(value);
  return masked(dtype, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
}

Words reduced(nccl::DataType dtype, nccl::RedOp op, const std::vector<Words>& ranks,
              const Words& factors) {
  const auto n = static_cast<int>(ranks.size());
  if (n == 0) return {};
  const std::size_t count = ranks[0].size();
  Words all;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<int> order;
    for (int rank = n - 1; rank >= 0; --rank) order.push_back(rank);
    if (i >= (count + 1) / 2 && n > 2) std::swap(order[order.size() - 2], order.back());
    const bool has_factor = op == kProducts || op == nccl::kAvg;
    std::uint64_t sum = 0;
    for (const int rank : order) {
      const auto at = static_cast<std::size_t>(rank);
      const std::uint64_t word = ranks[at][i];
      const bool is_first = rank == order[0];
      if (is_float(dtype)) {
        const double value = double_of(dtype, word);
        std::uint64_t by = op == kProducts ? factors[at] : word_of(dtype, 1.0 / n);
        if (dtype != nccl::kFloat64 && op == nccl::kAvg) {
          by = word_of(dtype, static_cast<float>(1.0 / n));
        }
        const double factor = has_factor ? double_of(dtype, by) : 1;
        if (is_first) {
          sum = has_factor ? word_of(dtype, value * factor) : word;
        } else {
          sum = word_of(dtype, floating(op, double_of(dtype, sum), value, factor));
        }
      } else if (is_first) {
        sum = op == kProducts ? word * factors[at] : word;
      } else {
        sum = integer(dtype, op, sum, word, op == kProducts ? factors[at] : 1);
      }
    }
    if (op == nccl::kAvg && !is_float(dtype)) {
      sum = is_signed(dtype) ? static_cast<std::uint64_t>(signed_of(dtype, sum) / n)
                             : masked(dtype, sum) / static_cast<std::uint64_t>(n);
    }
    all.push_back(masked(dtype, sum));
  }
  return all;
}

std::vector<std::byte> packed(nccl::DataType dtype, const Words& words) {
  const std::size_t size = bytes_of(dtype);
  std::vector<std::byte> bytes(words.size() * size);
  for (std::size_t i = 0; i < words.size(); ++i) std::memcpy(&bytes[i * size], &words[i], size);
  return bytes;
}

Words unpacked(nccl::DataType dtype, const std::vector<std::byte>& bytes) {
  const std::size_t size = bytes_of(dtype);
  Words words(bytes.size() / size);
  for (std::size_t i = 0; i < words.size(); ++i) std::memcpy(&words[i], &bytes[i * size], size);
  return words;
}
