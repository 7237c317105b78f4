// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "c10d/collective.h"

namespace c10d::conformance {

// Which numbers a case uses.
enum class Values : std::uint8_t {
  // Whole numbers so small that every partial result is exact in the domain in which the op
  // accumulates, in any
  // order: floating point results then depend on nothing but the one rounding at the end.
  exact,
  // Any bits: integers that wrap; numbers that round at every step, with infinities, NaNs,
  // denormals and zeros of
  // both signs. Sums and products then depend on the order, which is the documented tree.
  hard
};

// What the ranks hold: element `index` of rank `rank`, from a seed. The oracle makes every number
// again where it needs it, on whichever rank.
struct Numbers {
  DType dtype;
  ReduceOp op;  // of reductions; makes products stay small
  Values values;
  std::uint64_t seed;
  bool rounds_often = false;  // f16 and bf16 round at every step: partial results must be exact
};

constexpr double kPremulFactor = 0.3;  // of hard numbers
constexpr double kExactPremulFactor = 0.5;

std::uint64_t mix(std::uint64_t x) noexcept;

// Elements [first, first + count) of one rank.
void fill(const Numbers& numbers, int rank, std::size_t first, std::byte* to, std::size_t count);
// Elements [first, first + count) reduced over `ranks` ranks.
void fill_reduced(const Numbers& numbers, int ranks, std::size_t first, std::byte* to,
                  std::size_t count);
// Empty when equal: the same bits, but any NaN equals any other. Else the first difference.
std::string difference(DType dtype, const std::byte* expected, const std::byte* actual,
                       std::size_t count);

}  // namespace c10d::conformance
