// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "c10d/collective.h"
#include "kernels/reduce.h"

namespace c10d { inline namespace v0 {

// f16 and bf16 round once, so the ranks cannot pass partial sums on: whether the op must collect
// the elements of all ranks first.
constexpr bool collects_first(DType dtype, ReduceOp::Kind kind) noexcept {
  return (dtype == DType::f16 || dtype == DType::bf16) && kind != ReduceOp::min &&
         kind != ReduceOp::max;
}

// Up to this the elements of all ranks go to every rank, and each reduces all of them: one step,
// not two.
inline constexpr std::size_t kGatherAllBytes = 4096;

// Slice i of `count` elements for rank i.
inline std::vector<std::size_t> slices(std::size_t count, int size) {
  const std::size_t n = static_cast<std::size_t>(size);
  std::vector<std::size_t> counts(n, count / n);
  for (std::size_t i = 0; i < count % n; ++i) ++counts[i];
  return counts;
}

// Where the shard of `rank` begins.
inline std::size_t first_of(std::span<const std::size_t> counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}

// Reduces the inputs of all ranks, which lie one after the other in `collected`.
inline void reduce_collected(View output, const void* collected, int size, ReduceOp op) {
  if (output.count == 0) return;
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < size; ++rank)
    inputs.push_back(static_cast<const std::byte*>(collected) +
                     static_cast<std::size_t>(rank) * output.bytes());
  reduce(output.dtype, op, static_cast<std::byte*>(output.data), inputs, output.count);
}

// The factor of a premul_sum, for the sum that follows.
inline void multiply(void* output, ConstView input, ReduceOp op) {
  const std::byte* const in = static_cast<const std::byte*>(input.data);
  reduce(input.dtype, op, static_cast<std::byte*>(output), {&in, 1}, input.count);
}

template <class T>
void divide(T* data, std::size_t count, int divisor) {
  for (std::size_t i = 0; i < count; ++i) data[i] /= static_cast<T>(divisor);
}

// Makes a sum an average. Only f32, f64 and complex numbers of them get here: f16 and bf16 are
// collected first, and integers have no avg.
inline void divide(View view, int divisor) {
  const std::size_t numbers = view.bytes() / size_of(real_of(view.dtype));
  if (real_of(view.dtype) == DType::f32)
    divide(static_cast<float*>(view.data), numbers, divisor);
  else
    divide(static_cast<double*>(view.data), numbers, divisor);
}

}}  // namespace c10d::v0
