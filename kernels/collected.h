// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "c10d/collective.h"

namespace c10d::inline v0 {

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

template <class T>
void divide(T* data, std::size_t count, int divisor) {
  for (std::size_t i = 0; i < count; ++i) data[i] /= static_cast<T>(divisor);
}

// Makes a sum an average. Only f32 and f64 get here: f16 and bf16 are collected first, and integers
// have no avg.
inline void divide(Tensor tensor, int divisor) {
  if (tensor.dtype == DType::f32)
    divide(static_cast<float*>(tensor.data), tensor.count, divisor);
  else
    divide(static_cast<double*>(tensor.data), tensor.count, divisor);
}

}  // namespace c10d::inline v0
