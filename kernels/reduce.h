// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

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

// A node of the tree over n ranks, a subtree or one rank: the ranks [first, first + count). It has
// the shape of the tree over `count` ranks.
struct TreeNode {
  std::size_t first = 0;
  std::size_t count = 0;
  bool operator==(const TreeNode&) const = default;
};
// The largest nodes of the tree over n ranks that lie in [first, last), in the order of ranks. Of 6
// ranks, [2, 6) is {2, 2} and {4, 2}.
std::vector<TreeNode> tree_nodes(std::size_t n, std::size_t first, std::size_t last);

// Hosts that each hold the inputs of some ranks reduce these by themselves, along the nodes that
// lie in them, and pass the partial results on. reduce_partial() of each node and reduce_end() of
// all partial results have the bits of reduce() over all inputs, whichever CPUs they run on.

// The dtype of partial results: f32 for what adds up or multiplies f16 or bf16, which are rounded
// only at the end; else `dtype`.
DType partial_type(DType dtype, ReduceOp::Kind kind) noexcept;
// Whether floating point numbers are rounded, so that the result depends on the order.
constexpr bool rounds(ReduceOp::Kind kind) noexcept {
  switch (kind) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::prod:
    case ReduceOp::premul_sum:
      return true;
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      break;
  }
  return false;
}

// `out`, in partial_type(), is the result of one node: `in` are the inputs of its ranks.
// premul_sum's factor is applied, the division of avg and the rounding to f16 and bf16 are not.
// `out` may be one of the inputs where they are of the same dtype. Else as reduce().
void reduce_partial(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> in,
                    std::size_t count);

// `out` is the result over all ranks, whose number is the sum of `ranks`: in[i], in partial_type(),
// is the partial result of the node of the next ranks[i] ranks. It takes one pass where the tree
// above the nodes has the shape of the tree over as many inputs, as it has for up to two nodes, for
// nodes of the same power of two of ranks, and if only the last of these is smaller; else some more
// in L1. `out` may be one of the inputs where they are of the same dtype. Throws
// std::invalid_argument also when `in` and `ranks` differ in length, and when one of `ranks` is no
// node of the tree. Else as reduce().
void reduce_end(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> in,
                std::span<const std::size_t> ranks, std::size_t count);

// The variants of the loops in this build. All give the same bits; reduce() takes the fastest that
// the CPU can run. `baseline` has the vectors that every CPU of the architecture has: SSE2, NEON.
enum class KernelIsa { baseline, avx2, avx512 };
std::span<const KernelIsa> runnable_isas() noexcept;  // slowest first; baseline is always there
void reduce(KernelIsa isa, DType dtype, ReduceOp op, std::byte* out,
            std::span<const std::byte* const> in, std::size_t count,
            StorePolicy policy = StorePolicy::temporal, const Copying& refill = {});
void reduce_partial(KernelIsa isa, DType dtype, ReduceOp op, std::byte* out,
                    std::span<const std::byte* const> in, std::size_t count);
void reduce_end(KernelIsa isa, DType dtype, ReduceOp op, std::byte* out,
                std::span<const std::byte* const> in, std::span<const std::size_t> ranks,
                std::size_t count);

}}  // namespace c10d::v0
