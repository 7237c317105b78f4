// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "c10d/parallel/parameters.h"
#include "c10d/process_group.h"

namespace c10d { inline namespace v0 { namespace parallel {

enum class ReduceMode : std::uint8_t {
  fast,          // one shard per rank; the backend decides the order of the sum
  reproducible,  // the canonical tree over `shards`: see reproducible.h. f32 and f64 only
};

struct ReducerOptions {
  ReduceMode mode = ReduceMode::fast;
  int shards = 16;  // of the global batch; reproducible only
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  // Else an eighth of all gradients, but 25 MiB at most and first_bucket_bytes at least: the last
  // bucket leaves when backward is over, and nothing hides it.
  std::optional<std::size_t> bucket_bytes{};
  bool check_hash = false;  // compare the mean gradients of all ranks after each step
};

struct StepInfo {
  std::int64_t samples = 0;  // of this rank, in all its shards
};
struct StepResult {
  std::int64_t samples = 0;  // of all ranks; 0: no rank had any, and the gradients are 0
};

struct BucketParam {
  std::size_t index;      // in the list of parameters
  const ParamSpec* spec;  // lives as long as the reducer
  std::size_t offset;     // elements from the start of the bucket
};

// Gradients that are reduced together; all of one dtype. Between parameters lies padding of zeros.
struct Bucket {
  std::size_t index = 0;
  Tensor gradient;
  std::span<const BucketParam> params;
  double samples = 0;  // of all ranks
};

// Reduces one bucket: takes gradient, the sum over this rank's samples, and leaves in its place the
// sum over all ranks divided by `samples`. Same calls on every rank. What it throws fails the step.
using BucketHook = std::function<void(ProcessGroup&, const Bucket&)>;
using BucketCallback = std::function<void(const Bucket&)>;  // likewise

// Bytes that a Reducer over `size` ranks takes for gradients, on each of them.
C10D_API std::size_t gradient_bytes(std::span<const ParamSpec> params,
                                    const ReducerOptions& options, int size);

// Averages gradients over the ranks while backward goes on.
//
//   Reducer reducer(group, params, {.mode = ReduceMode::reproducible, .shards = 16});
//   reducer.begin({.samples = n});        // n of this rank
//   for each own shard, in order          // shards_of(16, rank, size); in mode fast there is one
//     for each parameter p, any order:    // or for each p, for each own shard
//       write into reducer.grad_view(p); reducer.ready(p);
//   reducer.finish();                     // grad_view(p) is now the mean over all samples
//
// What is written is the SUM over the shard's samples, not their mean, and the view of each shard
// starts as rubbish: the divisor is the true number of samples of all ranks, so uneven parts are
// right. After begin({0}) gradients that are not marked by finish() count as zeros.
//
// Buckets hold the parameters in reverse order, after the first step in rank 0's order of ready();
// they leave in index order as soon as all their gradients are there, on a thread and a group
// (new_group of all ranks) of the reducer's own: `group` stays free for the caller.
//
// Buffers beside the gradients, such as the running statistics of a BatchNorm, are broadcast by
// nobody and averaged when they are listed as parameters: a shard's statistic times its samples is
// the "gradient", and every rank updates the buffer once from the mean over all shards. So buffers
// have the same bits on every rank and, reproducible, at every number of ranks, as weights do. A
// buffer that is not listed stays the rank's own.
//
// Misuse (a parameter ready too often, not ready at finish(), unknown), or what a hook throws,
// fails the step on every rank and breaks `group` too; a failure of communication breaks the
// reducer only. finish() throws: InvalidArgument on a rank that made a mistake, on the others a
// DistError with its text. Every later begin() and finish() throws the same.
//
// ready() and grad_view() of different parameters may be called from several threads; all else by
// one at a time. CPU memory.
class C10D_API Reducer {
 public:
  // Collective. Names, shapes, dtypes and options must be the same on every rank: else all ranks
  // throw a mismatch that names the first difference. `group` must outlive the reducer.
  Reducer(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options = {});
  // In the middle of a step: breaks the reducer's group, so that no other rank waits for this one.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Collective, as all steps are. May wait for the others once, before the second step.
  void begin(StepInfo info);

  // In a step: where the gradient of the next own shard goes; else the last mean, until begin().
  // The address changes with every shard and after the first step, never otherwise.
  std::span<std::byte> grad_view(std::size_t param);

  // The view of `param` is written, for the next own shard. Never throws: see finish().
  void ready(std::size_t param) noexcept;
  // The same for a gradient that is zero: adds nothing to what is collected.
  void unused(std::size_t param) noexcept;

  // Waits for all buckets, and calls `use` for each in index order as soon as its mean is there, to
  // overlap an optimizer with those behind it. It may have seen some buckets of a step that fails.
  StepResult finish(const BucketCallback& use = {});

  // While it lives, finish() reduces nothing and returns the samples collected so far on this rank:
  // the caller adds the next micro-batch to what is in the views. The next step without it counts
  // the samples of all. Throws InvalidArgument in mode reproducible: there, use more shards.
  class C10D_API NoSync {
   public:
    explicit NoSync(bool& flag) noexcept : flag_(flag) { flag_ = true; }
    ~NoSync() { flag_ = false; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    bool& flag_;
  };
  [[nodiscard]] NoSync no_sync();

  // Between steps. Throws InvalidArgument in mode reproducible: compression ends its promise.
  void set_hook(BucketHook hook);
  // Between steps. Called on the reducer's thread for each bucket in index order, as soon as its
  // mean is there, also during backward. The next bucket waits until it returns.
  void on_bucket_done(BucketCallback callback);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Collective: throws a mismatch on every rank, naming `what` and the ranks that differ from rank 0,
// unless all ranks give the same bytes. Compares 64-bit hashes.
C10D_API void check_same(ProcessGroup& group, std::string_view what,
                         std::span<const std::byte> bytes);

}}}  // namespace c10d::v0::parallel
