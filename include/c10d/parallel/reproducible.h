// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "c10d/process_group.h"

// Sums whose bits do not depend on the number of ranks.
//
// A global batch is cut into G virtual shards. A sum over shards follows one canonical tree:
// node [lo, hi) = node [lo, mid) + node [mid, hi) with mid = (lo + hi) / 2; a leaf is one shard's
// value. A rank owns a contiguous range of shards and holds the sums of the largest nodes inside
// it, its subtrees: exactly one when ranks and G are powers of two.
namespace c10d { inline namespace v0 { namespace parallel {

// [first, last)
struct ShardRange {
  int first = 0;
  int last = 0;
  int count() const noexcept { return last - first; }
  bool operator==(const ShardRange&) const = default;
};

// The shards of `rank` of `size`: at most G / size, rounded up; beyond that cut where the tree is,
// for few subtrees: of 16 shards, 3 ranks get 4, 6 and 6. None for some ranks when size > G. Throws
// InvalidArgument unless 0 < shards <= 65536 and 0 <= rank < size.
C10D_API ShardRange shards_of(int shards, int rank, int size);

// The samples of one shard of a batch: [shard n / G, (shard + 1) n / G). The same rule for a short
// last batch. Depends on nothing but its arguments. Throws InvalidArgument for a batch < 0, shards
// as above, a shard out of [0, shards).
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t count() const noexcept { return last - first; }
  bool operator==(const SampleRange&) const = default;
};
C10D_API SampleRange samples_of(std::int64_t batch, int shards, int shard);

// The largest nodes of the tree over [0, shards) inside `owned`, in order.
C10D_API std::vector<ShardRange> subtrees_of(int shards, ShardRange owned);

// How one rank adds its shards, which come in order, with few buffers: the value of its i-th shard
// is written to slot plan[i].slot, then `merges` times the last slot is added to the one before it
// (slot[s - 1] += slot[s]). After the last shard, slot j holds the sum of subtrees_of(...)[j].
struct MergeStep {
  int slot = 0;
  int merges = 0;
};
C10D_API std::vector<MergeStep> merge_plan(int shards, ShardRange owned);
// >= 1. With L = log2(shards), rounded up: L + 1 at most for one subtree, 2 L for several.
C10D_API int slots_of(std::span<const MergeStep> plan) noexcept;

// to[e] += from[e], on one thread. Throws InvalidArgument unless both are f32, or both f64, and
// have one count.
C10D_API void add_to(Tensor to, ConstTensor from);
// value[e] /= divisor, in f64, or in f32 by the divisor as an f32; f16 and bf16 are rounded from
// the quotient in f32. A divisor of 1 does nothing; else throws InvalidArgument for another dtype.
C10D_API void divide(Tensor value, double divisor);

// The buffers of a merge_plan. Per step: for each own shard in order write next(), then done();
// then read partials(); then reset(). Not for two threads at once.
class C10D_API ShardAccumulator {
 public:
  // dtype: f32 or f64, else InvalidArgument.
  ShardAccumulator(int shards, ShardRange owned, std::size_t count, DType dtype = DType::f32);

  // Where the next shard's value is to be written. Holds rubbish before. Throws std::logic_error
  // when all own shards are done.
  Tensor next();
  void done();
  // Copies `leaf` to next(), then done().
  void add(ConstTensor leaf);
  // One per subtree, valid until reset(). Throws std::logic_error while own shards are missing.
  std::vector<ConstTensor> partials() const;
  // Of all shards, where all are own: partials()[0], which may be overwritten. Throws as
  // partials().
  Tensor sum();
  bool complete() const noexcept { return shards_done_ == plan_.size(); }
  void reset() noexcept { shards_done_ = 0; }

 private:
  Tensor slot(int index) const noexcept;

  std::vector<MergeStep> plan_;
  std::size_t subtrees_;
  std::size_t count_;
  DType dtype_;
  std::size_t shards_done_ = 0;
  std::unique_ptr<std::byte[]> memory_;
};

// The sum over the subtrees of all ranks in the order of the tree: the same bits for any group
// size and backend. Takes group.all_reduce or reduce_scatter_v where that is the order of the tree:
// two ranks, or `native` with a power of two. Else each rank adds a slice of all partial sums,
// where they lie or from copies, and all_gather brings the slices together; below 16 KiB each adds
// all.
//
// All calls are collective over the group, block, and fail as its calls do. The group must outlive
// this object, and is in use during a call: overlap needs a thread and a group of its own. One
// thread at a time.
class C10D_API TreeSum {
 public:
  TreeSum(ProcessGroup& group, int shards);
  ~TreeSum();
  TreeSum(TreeSum&&) noexcept;
  TreeSum& operator=(TreeSum&&) noexcept;

  int shards() const noexcept;
  ShardRange owned() const noexcept;  // shards_of(shards, rank, size)
  // Of this rank: as many partials are wanted.
  const std::vector<ShardRange>& subtrees() const noexcept;

  // out = sum / divisor on every rank. partials[j] belongs to subtrees()[j]; each has out.count
  // elements of out's dtype, f32 or f64. `out` may be partials[0] or apart from all of them.
  // `memory`, of group.allocate() and the same on all ranks: where the partials of all ranks lie in
  // it and ranks reach it, nothing is copied to be added.
  void all_reduce(Tensor out, std::span<const ConstTensor> partials, double divisor = 1,
                  const Buffer<std::uint8_t>& memory = {});

  // out = this rank's slice of sum / divisor. The slices lie one behind the other: counts[r]
  // elements for rank r; the partials have as many elements as all counts together. `out` may be
  // the own slice of partials[0] or apart from all partials.
  void reduce_scatter(Tensor out, std::span<const ConstTensor> partials, Counts counts,
                      double divisor = 1);

  // Sums of scalars (a loss, counts): out[k] = sum over shards of value k. `leaves` holds
  // out.size() values per own shard, shard by shard.
  void sum(std::span<double> out, std::span<const double> leaves);

 private:
  struct Exchange;
  std::unique_ptr<Exchange> exchange_;
};

}}}  // namespace c10d::v0::parallel
