// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "c10d/collective.h"
#include "c10d/view.h"
#include "kernels/copy.h"

namespace c10d { inline namespace v0 {

// out[e] = in[0][e] op in[1][e] op ... op in[n - 1][e] for every element e < count, with one input
// per rank.
//
// The inputs combine along one fixed binary tree, whatever the count, the position or the CPU:
// [0, n) splits into its first L inputs and the rest, with L the largest power of two below n; each
// part is reduced the same way, then the two results combine. So 3 is (0 1) 2, 5 is ((0 1) (2 3))
// 4, 7 is ((0 1) (2 3)) ((4 5) 6).
//
// f16 and bf16 are widened to f32 and rounded once, to nearest even, at the end of the tree;
// denormals are kept. premul_sum multiplies every input before the tree, avg divides by n after it,
// both in the domain of the tree (f32 for f16 and bf16) and with a rounding of their own: no fused
// operations. Nothing depends on how the calling thread rounds or whether it flushes denormals. A
// NaN result is always the positive quiet NaN without payload, so that bits never depend on the
// order of two NaNs. Complex numbers are summed part by part. Integers wrap. On bool any byte but 0
// counts as true, and results are 0 or 1.
//
// `out` is written as `policy` says. It may be one of the inputs; other overlap is not allowed. No
// pointer needs alignment. `refill` is new content for the first bytes of one of the inputs, copied
// behind the loop that has read the old ones. Throws std::invalid_argument when `in` is empty or
// why_unsupported(op.kind, dtype) has a reason, and for numbers of 8 bits.
void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> in,
            std::size_t count, StorePolicy policy = StorePolicy::temporal,
            const Copying& refill = {});

// The variants of the loops in this build. All give the same bits; reduce() takes the fastest that
// the CPU can run. `baseline` has the vectors that every CPU of the architecture has: SSE2, NEON.
enum class KernelIsa { baseline, avx2, avx512 };
std::span<const KernelIsa> runnable_isas() noexcept;  // slowest first; baseline is always there
void reduce(KernelIsa isa, DType dtype, ReduceOp op, std::byte* out,
            std::span<const std::byte* const> in, std::size_t count,
            StorePolicy policy = StorePolicy::temporal, const Copying& refill = {});

}}  // namespace c10d::v0
