// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "c10d/tensor.h"

namespace c10d { inline namespace v0 {

// How elements of the ranks combine.
//   sum prod min max avg   integers wrap; f16 and bf16 accumulate in f32 and round once; NaN
//                          propagates through min and max; -0 < +0; avg is the sum divided by the
//                          size, floating point only
//   band bor bxor          integers and bool
//   premul_sum             every input times `factor`, then sum; floating point only
// On bool: sum, max, bor are "or"; prod, min, band are "and"; bxor is "xor".
struct ReduceOp {
  enum Kind : std::uint8_t { sum, avg, prod, min, max, band, bor, bxor, premul_sum };
  Kind kind = sum;
  double factor = 1;  // of premul_sum; every rank gives the same

  constexpr ReduceOp(Kind kind_ = sum) noexcept : kind(kind_) {}
  static constexpr ReduceOp premul(double factor_) noexcept {
    ReduceOp op(premul_sum);
    op.factor = factor_;
    return op;
  }
};
inline constexpr int kReduceOpCount = 9;

C10D_API std::string_view to_string(ReduceOp::Kind kind) noexcept;
// Throws InvalidArgument that lists the names.
C10D_API ReduceOp::Kind reduce_op_from_string(std::string_view name);
// Why this pair makes no sense, or empty when it does. The same answer on every backend.
C10D_API std::string_view why_unsupported(ReduceOp::Kind kind, DType dtype) noexcept;

inline constexpr int kAnySource = -1;

// One struct per op: what the funnel builds and a backend launches. n = size of the group. Where
// input and output are the same memory the op is in place: input == output for all_reduce,
// broadcast and reduce; for all_gather and gather the input is the rank's own shard of the output;
// for reduce_scatter and scatter the output is the rank's own shard of the input. Counts are in
// elements; Counts has one per rank.
using Counts = std::span<const std::size_t>;
// clang-format off
struct AllReduce      { Tensor output; ConstTensor input; ReduceOp op; };  // k -> k
struct Broadcast      { Tensor output; ConstTensor input; int root; };     // k -> k, from root
struct AllGather      { Tensor output; ConstTensor input; };               // k -> n k
struct AllGatherV     { Tensor output; ConstTensor input; Counts counts; };
struct ReduceScatter  { Tensor output; ConstTensor input; ReduceOp op; };  // n k -> k
struct ReduceScatterV { Tensor output; ConstTensor input; Counts counts; ReduceOp op; };
struct Reduce         { Tensor output; ConstTensor input; ReduceOp op; int root; };  // to root
struct Gather         { Tensor output; ConstTensor input; int root; };     // as all_gather, to root
struct GatherV        { Tensor output; ConstTensor input; Counts counts; int root; };
struct Scatter        { Tensor output; ConstTensor input; int root; };     // n k -> k, from root
struct ScatterV       { Tensor output; ConstTensor input; Counts counts; int root; };
struct AllToAll       { Tensor output; ConstTensor input; };               // n k -> n k
struct AllToAllV      { Tensor output; ConstTensor input; Counts output_counts, input_counts; };
struct Barrier        {};
struct Send           { ConstTensor input; int peer; std::uint32_t tag; };
struct Recv           { Tensor output; int peer; std::uint32_t tag; };     // peer may be kAnySource
// clang-format on

using Op =
    std::variant<AllReduce, Broadcast, AllGather, AllGatherV, ReduceScatter, ReduceScatterV, Reduce,
                 Gather, GatherV, Scatter, ScatterV, AllToAll, AllToAllV, Barrier, Send, Recv>;

// The alternatives of Op, in its order.
enum class OpKind : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  all_gather_v,
  reduce_scatter,
  reduce_scatter_v,
  reduce,
  gather,
  gather_v,
  scatter,
  scatter_v,
  all_to_all,
  all_to_all_v,
  barrier,
  send,
  recv
};
inline constexpr int kOpCount = 16;
static_assert(std::variant_size_v<Op> == kOpCount);

inline OpKind kind_of(const Op& op) noexcept { return static_cast<OpKind>(op.index()); }
constexpr bool is_point_to_point(OpKind kind) noexcept { return kind >= OpKind::send; }
// Whether the op takes a ReduceOp.
constexpr bool is_reduction(OpKind kind) noexcept {
  return kind == OpKind::all_reduce || kind == OpKind::reduce_scatter ||
         kind == OpKind::reduce_scatter_v || kind == OpKind::reduce;
}

C10D_API std::string_view to_string(OpKind kind) noexcept;
// Throws InvalidArgument that lists the names and the nearest one.
C10D_API OpKind op_from_string(std::string_view name);

}}  // namespace c10d::v0
