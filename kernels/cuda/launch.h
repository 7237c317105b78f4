// SPDX-License-Identifier: BSD-3-Clause
// The CUDA kernels of this build, for who launches them: where they are, what they are called, and
// how large their grid is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "c10d/collective.h"
#include "kernels/cuda/arguments.h"

namespace c10d { inline namespace v0 { namespace cuda_kernels {

// Why this build has no kernels, as one sentence; empty if it has them.
std::string_view why_none() noexcept;

// A kernel, whose one parameter is Arguments.
struct Kernel {
  std::span<const std::byte> image;  // the fat binary that has it; empty if why_none() has a reason
  const char* name = nullptr;        // null: there is no such kernel

  explicit operator bool() const noexcept { return name != nullptr; }
};

// As static_cast of c10d/small_float.h and of integers: f32 to and from f16 and bf16; i16 to and
// from i32; u16 to and from u32; boolean to u8, as 0 or 1.
Kernel cast_kernel(DType from, DType to) noexcept;
// Whether each u8 is odd, as 0 or 1: of a sum of booleans, their "xor".
Kernel parity_kernel() noexcept;
// Floating point to integers in the order of min or max, so that the least or greatest integer is
// what reduce() takes of the numbers: i64 for f64, else i32. And back.
Kernel to_keys_kernel(ReduceOp::Kind kind, DType dtype) noexcept;
Kernel from_keys_kernel(DType dtype) noexcept;
// Floating point by Arguments::divisor, as avg divides; to the same dtype, or from f32 to f16 or
// bf16, rounded once.
Kernel divide_kernel(DType from, DType to) noexcept;
// What reduce() makes of two inputs: sum, min and max; prod, band, bor and bxor of integers and
// booleans.
Kernel combine_kernel(ReduceOp::Kind kind, DType dtype) noexcept;
// What reduce() makes of so many inputs, 1 to kMostInputs, of floating point: sum and prod; with a
// factor premul_sum, with a divisor avg.
Kernel fold_kernel(ReduceOp::Kind kind, DType dtype, std::uint64_t inputs) noexcept;

// Of every kernel, in no order.
std::vector<Kernel> all_kernels();

// Numbers the pieces of the tensors of a table, and returns how many there are.
std::uint64_t number_pieces(std::span<Tensor> tensors) noexcept;
// The arguments for one tensor.
Arguments arguments_of(const Tensor& tensor) noexcept;
// The arguments for a table that number_pieces() has seen, and its copy in device memory.
Arguments arguments_of(const Tensor* in_device, std::size_t tensors, std::uint64_t pieces) noexcept;

// Blocks of kThreads threads: enough to fill the GPU, and no more than there are pieces. At least
// one, since a grid must not be empty.
unsigned blocks_for(std::uint64_t pieces, int multiprocessors) noexcept;

}}}  // namespace c10d::v0::cuda_kernels
