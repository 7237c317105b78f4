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
// The global batch is split into G virtual shards. A sum over them follows one canonical tree: the
// node over the shards [lo, hi) is the node over [lo, mid) plus the node over [mid, hi), with mid =
// (lo + hi) / 2; a leaf is the value of one shard. A rank computes a contiguous range of shards. It
// holds the sums of the largest nodes inside that range, its subtrees: exactly one when the number
// of ranks and G are powers of two.
//
// Memory of a GPU. The same sums with the same bits, by kernels of this library and, between ranks,
// a group whose backend serves that GPU (nccl). Everything runs in order on one stream, that of the
// call or of the object; null is the legacy default stream. As the ops of a group do, calls enqueue
// and return, and what follows on the stream sees the result. Buffers, and the object, must stay
// until the stream is past them. A call waits for the GPU only where it says so. Do not capture it
// into a CUDA graph: it may take memory. Before anything is enqueued or sent, it throws
// InvalidArgument for memory of two devices, or for a stream with host memory alone, and
// DistBackendError (unsupported) where this build has no CUDA kernels. One difference to the CPU: a
// quotient that is NaN is the positive quiet one. Sums are that on both.
namespace c10d { inline namespace v0 { namespace parallel {

// The shards [first, last).
struct ShardRange {
  int first = 0;  // the first shard
  int last = 0;   // the one behind the last shard
  // Number of shards.
  int count() const noexcept { return last - first; }
  bool operator==(const ShardRange&) const = default;  // compares all fields
};

// The shards that `rank` of `size` ranks computes: at most G / size, rounded up, and split where
// the tree splits, so that there are few subtrees. 3 ranks get 4, 6 and 6 of 16 shards. Some ranks
// get none when size > G. Throws InvalidArgument unless shards is from 1 to 65,536 and rank is in
// [0, size).
C10D_API ShardRange shards_of(int shards, int rank, int size);

// The samples [first, last) of a batch.
struct SampleRange {
  std::int64_t first = 0;  // the first sample
  std::int64_t last = 0;   // the one behind the last sample
  // Number of samples.
  std::int64_t count() const noexcept { return last - first; }
  bool operator==(const SampleRange&) const = default;  // compares all fields
};
// The samples of one shard of a batch of `batch` samples, also of a short last batch: from
// shard * batch / shards up to (shard + 1) * batch / shards. Throws InvalidArgument for a negative
// batch, for shards as above, or a shard out of [0, shards).
C10D_API SampleRange samples_of(std::int64_t batch, int shards, int shard);

// Adds: to[i] += from[i], of host memory in this thread. Throws InvalidArgument unless both are
// f32, or both f64, and have the same count. On a GPU it loads the kernel and unloads it again,
// which waits for all work there, unless an object below or a group of nccl has loaded it.
C10D_API void add_to(View to, ConstView from, CudaStream stream = nullptr);
// Divides: value[i] /= divisor. f64 divides in f64, f32 in f32 by the divisor rounded to f32; f16
// and bf16 divide in f32 and round the quotient. A divisor of 1 does nothing. Throws
// InvalidArgument for any other dtype. On a GPU as add_to().
C10D_API void divide(View value, double divisor, CudaStream stream = nullptr);

// Sums the shards of one rank along the tree. Per step: for each shard of this rank, in order,
// write next(), then call done(); then read partials(); then reset(). One thread at a time.
class C10D_API ShardAccumulator {
 public:
  // For values of `count` elements in memory of `device`, added on that stream. On a GPU it may
  // wait for all work there. Throws InvalidArgument unless dtype is f32 or f64.
  ShardAccumulator(int shards, ShardRange owned, std::size_t count, DType dtype = DType::f32,
                   Device device = {}, CudaStream stream = nullptr);
  ~ShardAccumulator();
  // Takes over the state of `other`.
  ShardAccumulator(ShardAccumulator&& other) noexcept;
  // Takes over the state of `other`.
  ShardAccumulator& operator=(ShardAccumulator&& other) noexcept;

  // Where to write the value of the next shard, on a GPU from its stream. Not initialised. Throws
  // std::logic_error when all shards are done.
  View next();
  // Says that next() is written.
  void done();
  // Copies `leaf` to next(), then done(). Of a leaf on another device it throws InvalidArgument.
  void add(ConstView leaf);
  // The sums of the subtrees, in order. Valid until reset(). Throws std::logic_error while shards
  // are missing.
  std::vector<ConstView> partials() const;
  // The sum of all shards, where this rank has all of them: partials()[0]. It may be overwritten.
  // Throws as partials().
  View sum();
  // Whether all shards are done.
  bool complete() const noexcept;
  // Starts the next step.
  void reset() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sums over the subtrees of all ranks in the order of the tree: the same bits for any number of
// ranks and any backend. Where the backend reduces in the order of the tree (two ranks, or `native`
// with a power of two), it is one all_reduce or reduce_scatter_v. Elsewhere each rank adds a slice
// of all partial sums and all_gather distributes the slices; below 16 KiB every rank adds all.
//
// All calls are collective, block, and throw what the calls of the group throw. Nobody else may
// call the group meanwhile: to overlap, use a thread and a group of its own. One thread at a time.
//
// On GPUs calls enqueue instead of block. Two ranks and more add by gathers and kernels, never by a
// reduction of NCCL. A call that needs more memory of the GPU than those before, the first one
// among them, waits for the stream and takes it: a slice for each subtree of all ranks, in an
// all_reduce of at most 32 MiB of elements. If there is none it throws out_of_resources, and the
// other ranks wait for this one until their deadline.
class C10D_API TreeSum {
 public:
  // Sums over `shards` shards; those on the GPU of the group run on `stream`. Local. Throws as
  // shards_of().
  TreeSum(const ProcessGroup& group, int shards, CudaStream stream = nullptr);
  ~TreeSum();
  // Takes over the state of `other`.
  TreeSum(TreeSum&& other) noexcept;
  // Takes over the state of `other`.
  TreeSum& operator=(TreeSum&& other) noexcept;

  // Number of shards.
  int shards() const noexcept;
  // The shards of this rank: shards_of(shards, rank, size).
  ShardRange owned() const noexcept;
  // The subtrees of this rank: one partial sum is wanted for each.
  const std::vector<ShardRange>& subtrees() const noexcept;

  // Every rank gets out = sum / divisor, with the same bits. partials[j] is the sum of
  // subtrees()[j]; each has the count, dtype and device of out, f32 or f64, in host memory or on
  // the GPU of the group. `out` is partials[0], or does not overlap with any partial sum. `memory`
  // comes from one group.allocate() on all ranks: when the partial sums of all ranks lie in it, and
  // ranks can access each other's memory, nothing is copied. On GPUs it changes nothing.
  void all_reduce(View out, std::span<const ConstView> partials, double divisor = 1,
                  const Buffer<std::uint8_t>& memory = {});

  // Every rank gets its slice of sum / divisor. Rank r has counts[r] elements, behind the slice of
  // rank r - 1; a partial sum has as many elements as all slices together. `out` is this rank's
  // slice of partials[0], or does not overlap with any partial sum.
  void reduce_scatter(View out, std::span<const ConstView> partials,
                      std::span<const std::size_t> counts, double divisor = 1);

  // Sums scalars in host memory, such as a loss: out[i] is the sum over all shards of value i.
  // `leaves` has out.size() values for each shard of this rank, shard by shard.
  void sum(std::span<double> out, std::span<const double> leaves);

 private:
  struct Exchange;
  std::unique_ptr<Exchange> exchange_;
};

}}}  // namespace c10d::v0::parallel
