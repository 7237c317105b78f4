// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/reduce.h"

namespace c10d {

using Bytes = std::vector<std::byte>;

inline std::vector<ReduceOp> ops_of(DType dtype) {
  using enum ReduceOp::Kind;
  if (is_complex(dtype)) return {sum, avg, ReduceOp::premul(0.3)};
  if (is_float8(dtype)) return {};
  if (is_floating(dtype)) return {sum, avg, prod, min, max, ReduceOp::premul(0.3)};
  return {sum, prod, min, max, band, bor, bxor};
}

// Bits without a pattern hold every class of number for the narrow types; for the wide floats
// exponents are drawn near each other half of the time, so that sums round, and from the ends, so
// that there are denormals and NaNs.
inline Bytes random_bytes(DType dtype, std::size_t count, std::uint32_t seed) {
  if (is_complex(dtype)) return random_bytes(real_of(dtype), 2 * count, seed);
  std::mt19937_64 random(seed);
  Bytes bytes(count * size_of(dtype));
  for (std::size_t e = 0; e < count; ++e) {
    std::uint64_t word = random();
    const std::uint64_t choice = random() % 8;
    if (dtype == DType::f32 && choice < 4)
      word = (word & 0x80ffffff) | 0x3f000000;
    else if (dtype == DType::f32 && choice < 6)
      word = (word & 0x807fffff) | (choice == 4 ? 0 : 0x7f800000);
    else if (dtype == DType::f64 && choice < 4)
      word = (word & 0x803fffffffffffff) | 0x3fc0000000000000;
    else if (dtype == DType::f64 && choice < 6)
      word = (word & 0x800fffffffffffff) | (choice == 4 ? 0 : 0x7ff0000000000000);
    else if (dtype == DType::boolean && choice < 4)
      word = 0;
    if (choice == 7) word &= 0x8000000080008080;  // zeros of either sign
    std::memcpy(&bytes[e * size_of(dtype)], &word, size_of(dtype));
  }
  return bytes;
}

inline std::string isa_name(const testing::TestParamInfo<KernelIsa>& variant) {
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
  return kNames[static_cast<int>(variant.param)];
}

inline std::string name_of(KernelIsa isa, DType dtype, ReduceOp op) {
  return "isa " + std::to_string(static_cast<int>(isa)) + " dtype " +
         std::to_string(static_cast<int>(dtype)) + " op " + std::to_string(op.kind);
}

// Sets what a program may have set, in this thread.
class OtherArithmetic {
 public:
  OtherArithmetic() {
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);  // flushes denormals, on both sides
#elif defined(__aarch64__)
    asm volatile("mrs x0, fpcr; orr x0, x0, #0x1000000; msr fpcr, x0" ::: "x0");
#endif
  }
  ~OtherArithmetic() { std::fesetenv(FE_DFL_ENV); }
  OtherArithmetic(const OtherArithmetic&) = delete;
  OtherArithmetic& operator=(const OtherArithmetic&) = delete;
};

}  // namespace c10d
