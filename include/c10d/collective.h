// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>

#include "c10d/op_traits.h"
#include "c10d/view.h"

// Ops as values, for ProcessGroup::submit(), Batch and backends: one struct per op. The methods of
// ProcessGroup describe what each op does, in-place use and errors. Counts are in elements; n is
// the size of the group, k any number.
namespace c10d { inline namespace v0 {

// How the elements of the ranks are combined. Converts from its Kind: ReduceOp::max.
struct ReduceOp {
  // The reductions. On bool: sum, max and bor are "or"; prod, min and band are "and"; bxor is
  // "xor". Complex numbers have sum, avg and premul_sum only; f8e4m3 and f8e5m2 have sum and prod,
  // with nccl only, which saturate and round after each step.
  enum Kind : std::uint8_t {
    sum,         // integers wrap around; f16 and bf16 are rounded as Support::rounds says: once at
                 // the end, with nccl after each addition
    avg,         // sum divided by the number of ranks; floating point and complex only
    prod,        // integers wrap around; f16 and bf16 as for sum
    min,         // NaN if any element is NaN; -0 is less than +0
    max,         // NaN if any element is NaN; -0 is less than +0
    band,        // bitwise and; integers and bool only
    bor,         // bitwise or; integers and bool only
    bxor,        // bitwise exclusive or; integers and bool only
    premul_sum,  // every input times `factor`, then sum; floating point and complex only
  };
  Kind kind = sum;    // the reduction
  double factor = 1;  // of premul_sum; the same on every rank

  // The reduction of that kind, with factor 1.
  constexpr ReduceOp(Kind kind_ = sum) noexcept : kind(kind_) {}
  // A premul_sum with that factor.
  static constexpr ReduceOp premul(double factor_) noexcept {
    ReduceOp op(premul_sum);
    op.factor = factor_;
    return op;
  }
};
// Number of kinds of ReduceOp.
inline constexpr int kReduceOpCount = 9;

// Name of a kind: "sum", "premul_sum", ...
C10D_API std::string_view to_string(ReduceOp::Kind kind) noexcept;
// The kind of that name. Throws InvalidArgument that lists the names.
C10D_API ReduceOp::Kind reduce_op_from_string(std::string_view name);
// Why this kind makes no sense for this dtype, or empty when it does. The same on every backend.
C10D_API std::string_view why_unsupported(ReduceOp::Kind kind, DType dtype) noexcept;
// The same of an op that reduces: scan and exscan have no avg. Empty for an op that does not.
C10D_API std::string_view why_unsupported(OpKind op, ReduceOp::Kind kind, DType dtype) noexcept;

// Peer of a recv that takes a message from any rank.
inline constexpr int kAnySource = -1;

// See ProcessGroup::all_reduce().
struct AllReduce {
  View output;      // k elements
  ConstView input;  // k elements
  ReduceOp op;      // the reduction
};
// See ProcessGroup::broadcast().
struct Broadcast {
  View output;      // k elements
  ConstView input;  // k elements on the root; else ignored
  int root;         // rank in the group
};
// See ProcessGroup::all_gather().
struct AllGather {
  View output;      // n k elements
  ConstView input;  // k elements
};
// See ProcessGroup::all_gather_v().
struct AllGatherV {
  View output;                          // the sum of counts
  ConstView input;                      // counts[rank] elements
  std::span<const std::size_t> counts;  // of each rank
};
// See ProcessGroup::reduce_scatter().
struct ReduceScatter {
  View output;      // k elements
  ConstView input;  // n k elements
  ReduceOp op;      // the reduction
};
// See ProcessGroup::reduce_scatter_v().
struct ReduceScatterV {
  View output;                          // counts[rank] elements
  ConstView input;                      // the sum of counts
  std::span<const std::size_t> counts;  // of each rank
  ReduceOp op;                          // the reduction
};
// See ProcessGroup::reduce().
struct Reduce {
  View output;      // k elements on the root; else ignored
  ConstView input;  // k elements
  ReduceOp op;      // the reduction
  int root;         // rank in the group
};
// See ProcessGroup::scan().
struct Scan {
  View output;      // k elements
  ConstView input;  // k elements
  ReduceOp op;      // the reduction; not avg
};
// See ProcessGroup::exscan().
struct Exscan {
  View output;      // k elements; rank 0 leaves them as they are
  ConstView input;  // k elements
  ReduceOp op;      // the reduction; not avg
};
// See ProcessGroup::gather().
struct Gather {
  View output;      // n k elements on the root; else ignored
  ConstView input;  // k elements
  int root;         // rank in the group
};
// See ProcessGroup::gather_v().
struct GatherV {
  View output;                          // the sum of counts on the root; else ignored
  ConstView input;                      // counts[rank] elements
  std::span<const std::size_t> counts;  // of each rank
  int root;                             // rank in the group
};
// See ProcessGroup::scatter().
struct Scatter {
  View output;      // k elements
  ConstView input;  // n k elements on the root; else ignored
  int root;         // rank in the group
};
// See ProcessGroup::scatter_v().
struct ScatterV {
  View output;                          // counts[rank] elements
  ConstView input;                      // the sum of counts on the root; else ignored
  std::span<const std::size_t> counts;  // of each rank
  int root;                             // rank in the group
};
// See ProcessGroup::all_to_all().
struct AllToAll {
  View output;      // n k elements
  ConstView input;  // n k elements
};
// See ProcessGroup::all_to_all_v().
struct AllToAllV {
  View output;                                 // the sum of output_counts
  ConstView input;                             // the sum of input_counts
  std::span<const std::size_t> output_counts;  // from each rank
  std::span<const std::size_t> input_counts;   // to each rank
};
// See ProcessGroup::barrier().
struct Barrier {};
// See ProcessGroup::send().
struct Send {
  ConstView input;    // k elements
  int peer;           // to which rank
  std::uint32_t tag;  // of the message
};
// See ProcessGroup::recv().
struct Recv {
  View output;         // k elements
  int peer;            // from which rank, or kAnySource
  std::uint32_t tag;   // of the message
  bool exact = false;  // whether a message of less than k elements is a mismatch
};

// Any op.
using Op = std::variant<AllReduce, Broadcast, AllGather, AllGatherV, ReduceScatter, ReduceScatterV,
                        Reduce, Scan, Exscan, Gather, GatherV, Scatter, ScatterV, AllToAll,
                        AllToAllV, Barrier, Send, Recv>;

static_assert(std::variant_size_v<Op> == kOpCount, "every op has one row in kOpTraits");

// The op whose struct is T.
template <class T>
inline constexpr OpKind kKindOf = [] {
  return static_cast<OpKind>([]<class... Ops>(std::variant<Ops...>*) {
    std::size_t index = 0;
    (void)((std::is_same_v<T, Ops> || (++index, false)) || ...);
    return index;
  }(static_cast<Op*>(nullptr)));
}();

// Which op it is.
inline OpKind kind_of(const Op& op) noexcept { return static_cast<OpKind>(op.index()); }

}}  // namespace c10d::v0
