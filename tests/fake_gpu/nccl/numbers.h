// SPDX-License-Identifier: BSD-3-Clause
// What NCCL computes: each hop of the ring rounds to the type, NaN is dropped by min and max, and a
// factor is multiplied into the sum by one fused operation, as compilers for the GPU do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/backends/nccl/nccl.h"

namespace fake_nccl {

namespace nccl = c10d::nccl;

constexpr auto kPreMulSum = static_cast<nccl::RedOp>(5);

// 0 if it is no type.
std::size_t size_of(nccl::DataType dtype);

// A factor as it lies in memory: the first bytes are a value of the type.
using Factor = std::uint64_t;

struct Reduction {
  nccl::DataType dtype;
  nccl::RedOp
      op;  // an average is a sum whose factor is 1 / ranks; of integers it is divided at last
  int ranks;
};
// What each rank multiplies with for an average.
Factor one_over(nccl::DataType dtype, int ranks);

// What the first rank of the ring sends.
void start(const Reduction& how, std::byte* sum, const std::byte* values, std::size_t count,
           Factor factor);
// What each next rank makes of it.
void accumulate(const Reduction& how, std::byte* sum, const std::byte* values, std::size_t count,
                Factor factor);
// What the last one does besides.
void finish(const Reduction& how, std::byte* sum, std::size_t count);

// In which order the ranks add on one of two channels. With the seed 1 as NCCL was seen to do it,
// else by chance.
std::vector<int> order_of(int ranks, int channel, std::uint64_t seed, std::uint64_t piece);

}  // namespace fake_nccl
