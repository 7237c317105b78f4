// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "c10d/parallel/reproducible.h"

// How ranks sum their shards along the tree of reproducible.h.
namespace c10d { inline namespace v0 { namespace parallel {

// The largest nodes of the tree over [0, shards) that lie inside `owned`, in order.
C10D_API std::vector<ShardRange> subtrees_of(int shards, ShardRange owned);

// What a rank does with the value of one shard, to sum its shards in order with few buffers.
struct MergeStep {
  int slot = 0;    // buffer into which the value is written
  int merges = 0;  // then the last buffer is added to the one before it, this many times
};
// Does the merges of `step`. `slot_of` gives the tensor of a slot, `add` is add_to() on a GPU too.
template <class SlotOf, class Add>
void merge(const MergeStep& step, const SlotOf& slot_of, const Add& add) {
  for (int last = step.slot; last > step.slot - step.merges; --last)
    add(slot_of(last - 1), slot_of(last));
}
// The same in host memory.
template <class SlotOf>
void merge(const MergeStep& step, const SlotOf& slot_of) {
  merge(step, slot_of, [](View to, ConstView from) { add_to(to, from); });
}
// The steps for the shards of `owned`, in order. After the last one, buffer j holds the sum of
// subtrees_of(shards, owned)[j].
C10D_API std::vector<MergeStep> merge_plan(int shards, ShardRange owned);
// Number of buffers that a plan needs, at least 1. With L = log2(shards), rounded up, it is at most
// L + 1 for one subtree, and 2 L for several.
C10D_API int slots_of(std::span<const MergeStep> plan) noexcept;

// Throws InvalidArgument, which begins with `who`, unless values of that dtype can be summed along
// the tree.
void check_summable(std::string_view who, DType dtype);

// out = the root of the tree over [0, shards) / divisor, from the sums of nodes that cover it
// without overlap, in order. `out` may be one of the values or apart from all. In host memory.
void fold(View out, int shards, std::span<const ShardRange> nodes,
          std::span<const ConstView> values, double divisor);

}}}  // namespace c10d::v0::parallel
