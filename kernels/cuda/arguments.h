// SPDX-License-Identifier: BSD-3-Clause
// What all kernels take: their one parameter, as host and device see it.
#pragma once

#include <cstdint>

namespace c10d { inline namespace v0 { namespace cuda_kernels {

// Threads of a block.
inline constexpr unsigned kThreads = 256;
// Elements that a block takes at once.
inline constexpr std::uint32_t kPiece = 8192;
// The most inputs of a fold.
inline constexpr std::uint32_t kMostInputs = 1024;

// One output, and what it is made from. Pointers are aligned as their elements. The output may be
// an input if elements of both have one size; other overlap is not allowed.
struct Tensor {
  void* out = nullptr;
  const void* in = nullptr;
  const void* other = nullptr;    // combine: the second operand
  std::uint64_t count = 0;        // elements of the output
  std::uint64_t first_piece = 0;  // the pieces of all tensors are numbered one after another
};

struct Arguments {
  const Tensor* table = nullptr;  // in device memory; null: only the one below
  std::uint64_t tensors = 1;      // in the table
  std::uint64_t pieces = 0;       // of all of them
  Tensor only;
  double divisor = 1;        // divide, fold: of the result
  double factor = 1;         // fold, sum: of each input
  std::uint64_t inputs = 1;  // fold: how many, from Tensor::in on ...
  std::uint64_t stride = 0;  // ... each that many bytes behind the one before
};
static_assert(sizeof(Tensor) == 40 && sizeof(Arguments) == 96);

}}}  // namespace c10d::v0::cuda_kernels
