// SPDX-License-Identifier: BSD-3-Clause
// Runs a kernel of kernels/cuda on the stand-in, over many tensors in one launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/fake_gpu/driver_tests/process.h"

namespace kernel_tests {

namespace kernels = c10d::cuda_kernels;
using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* const first = reinterpret_cast<const std::byte*>(values.data());
  return Bytes(first, first + values.size() * sizeof(T));
}

// What a kernel reads, and what it must write, as arrays without gaps.
struct Expected {
  kernels::Kernel kernel;
  kernels::Arguments arguments;     // divisor, factor, inputs; stride: what it is too long
  std::size_t in_bytes, out_bytes;  // of an element
  std::vector<Bytes> in;            // one, or as many as `inputs`
  Bytes other;                      // of a kernel with two operands
  Bytes out;
};

// A body in a process with the GPU, and the bodies of the kernels.
void with_kernels(const std::function<void(Gpu&)>& body);

// Cuts the arrays into tensors of many sizes, from none and one element on, at many distances from
// an aligned address; launches once with a table of them, and for some each alone without one.
// Expects the bits, and that nothing else was written.
void expect_bits(Gpu& gpu, const Expected& expected);

cu::Pointer upload(Gpu& gpu, const void* from, std::size_t bytes);
// Unload the module when all is done.
cu::Function load(Gpu& gpu, const kernels::Kernel& kernel, cu::Module& module);
void launch(Gpu& gpu, cu::Function function, kernels::Arguments arguments);

// Every value of 16 bits; else what is special, what lies halfway between two numbers of f16 or
// bf16 and beside it, and random bits.
std::vector<std::uint16_t> every_half();
std::vector<std::uint32_t> many_words();
std::vector<std::uint64_t> many_long_words();

}  // namespace kernel_tests
