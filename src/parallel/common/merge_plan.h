// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <vector>

#include "c10d/parallel/reproducible.h"

// How a rank sums its shards along the tree of reproducible.h.
namespace c10d { inline namespace v0 { namespace parallel {

// The largest nodes of the tree over [0, shards) that lie inside `owned`, in order.
C10D_API std::vector<ShardRange> subtrees_of(int shards, ShardRange owned);

// What a rank does with the value of one shard, to sum its shards in order with few buffers.
struct MergeStep {
  int slot = 0;    // buffer into which the value is written
  int merges = 0;  // then so often the last buffer is added to the one before it
};
// The steps for the shards of `owned`, in order. After the last one, buffer j holds the sum of
// subtrees_of(shards, owned)[j].
C10D_API std::vector<MergeStep> merge_plan(int shards, ShardRange owned);
// Number of buffers that a plan needs, at least 1. With L = log2(shards), rounded up, it is at most
// L + 1 for one subtree, and 2 L for several.
C10D_API int slots_of(std::span<const MergeStep> plan) noexcept;

}}}  // namespace c10d::v0::parallel
