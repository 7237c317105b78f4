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

// How gradients are summed.
enum class ReduceMode : std::uint8_t {
  fast,          // one shard per rank; the backend decides the order of the sum
  reproducible,  // along the canonical tree over the shards (reproducible.h); f32 and f64 only
};

// Options of a Reducer.
struct ReducerOptions {
  ReduceMode mode = ReduceMode::fast;  // how gradients are summed
  int shards = 16;                     // of the global batch; mode reproducible only
  std::size_t first_bucket_bytes = std::size_t{1} << 20;  // of the bucket that is reduced first
  // Of the other buckets. Default: an eighth of all gradients, at most 25 MiB and at least
  // first_bucket_bytes. The last bucket is ready when backward is over, so its reduction overlaps
  // with nothing.
  std::optional<std::size_t> bucket_bytes{};
  bool check_hash = false;  // whether to compare the mean gradients of all ranks after each step
};

// What a rank says of a step.
struct StepInfo {
  std::int64_t samples = 0;  // of this rank, over all its shards
};
// What all ranks did in a step.
struct StepResult {
  std::int64_t samples = 0;  // of all ranks; when 0, the gradients are 0
};

// One parameter in a Bucket.
struct BucketParam {
  std::size_t index;      // in the list of parameters
  const ParamSpec* spec;  // valid as long as the reducer
  std::size_t offset;     // in elements from the start of the bucket
};

// Gradients that are reduced together. All have one dtype; the padding between them is zero.
struct Bucket {
  std::size_t index = 0;                // number of the bucket; they are reduced in this order
  View gradient;                        // the gradients of all its parameters
  std::span<const BucketParam> params;  // which parameters, and where they are
  double samples = 0;                   // of all ranks
  Deadline ready_at{};                  // when its last gradient was marked ready on this rank
};

// Reduces one bucket in place of the default all_reduce (torch: communication hook). On entry,
// bucket.gradient is the sum over this rank's samples; on return, it is the sum over all ranks
// divided by bucket.samples. It makes the same calls on every rank. An exception fails the step.
using BucketHook = std::function<void(ProcessGroup&, const Bucket&)>;
// Gets a bucket whose gradient is the mean over all samples. An exception fails the step.
using BucketCallback = std::function<void(const Bucket&)>;

// Bytes of memory that a Reducer over `size` ranks takes for gradients on each rank.
C10D_API std::size_t gradient_bytes(std::span<const ParamSpec> params,
                                    const ReducerOptions& options, int size);

// Averages gradients over the ranks while backward runs (torch: DistributedDataParallel).
//
//     Reducer reducer(group, params, {.mode = ReduceMode::reproducible, .shards = 16});
//     reducer.begin_step({.samples = n});        // n of this rank
//     for each own shard, in order          // shards_of(16, rank, size); in mode fast there is one
//       for each parameter p, any order:    // or for each p, for each own shard
//         write into reducer.grad<float>(p); reducer.mark_ready(p);
//     reducer.finish();                     // grad<float>(p) is now the mean over all samples
//
// Gradients. Write the SUM over the samples of the shard, not their mean: the reducer divides by
// the number of samples of all ranks, so ranks may have different numbers of samples. A view is not
// initialised. After begin_step() with 0 samples, gradients that are not marked before finish()
// count as zeros.
//
// Buckets hold the parameters in reverse order; after the first step, in the order in which rank 0
// called mark_ready(). A bucket is reduced, in index order, as soon as all its gradients are ready.
// This happens in a thread and a group of the reducer's own (new_group() of all ranks), so `group`
// stays free for the caller.
//
// Buffers. The reducer does not synchronise buffers such as BatchNorm statistics. To average one,
// list it as a parameter: its "gradient" is the statistic of a shard times the samples of that
// shard, and every rank updates the buffer once from the mean over all shards. The buffer then has
// the same bits on every rank and, in mode reproducible, at every number of ranks.
//
// Errors. Misuse (a parameter that is ready too often, not ready at finish(), or unknown), or an
// exception out of a hook, fails the step on every rank and breaks `group`, too. A failure of
// communication breaks the reducer only. finish() throws InvalidArgument on the rank that made the
// mistake, and a DistError with its text on the others. Every later begin_step() and finish()
// throws the same.
//
// Threads. mark_ready() and grad_view() of different parameters may be called from several threads
// at a time; all other calls from one. CPU memory only.
class C10D_API Reducer {
 public:
  // Collective. Names, shapes, dtypes and options must be the same on every rank, else all ranks
  // throw mismatch, which names the first difference.
  Reducer(const ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options = {});
  // In the middle of a step it breaks the reducer's group, so that no other rank waits for this
  // one.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Begins a step. Every rank takes every step. It may wait for the other ranks once, before the
  // second step.
  void begin_step(StepInfo info);

  // In a step: where to write the gradient of `param` for this rank's next shard. After finish():
  // the mean gradient, until the next begin_step(). The address changes with every shard and after
  // the first step, never otherwise. Throws InvalidArgument for a parameter that does not exist.
  std::span<std::byte> grad_view(std::size_t param);
  // The same as elements: reducer.grad<float>(0). Throws InvalidArgument also for a parameter of
  // another dtype.
  template <Element T>
  std::span<T> grad(std::size_t param) {
    const std::span<std::byte> bytes = grad_view(param, dtype_of<T>);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // Says that the view of `param` is written, for this rank's next shard. finish() reports
  // mistakes.
  void mark_ready(std::size_t param) noexcept;
  // The same for a gradient that is zero: the view need not be written.
  void mark_unused(std::size_t param) noexcept;

  // Ends a step: waits until all buckets are reduced. Calls `use` for each bucket in index order as
  // soon as its mean is there, so that an optimizer overlaps with the buckets behind it; `use` may
  // have seen some buckets of a step that fails. Throws why the step failed.
  StepResult finish(const BucketCallback& use = {});

  // While it lives, finish() reduces nothing (gradient accumulation): see no_sync().
  class C10D_API NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class Reducer;
    explicit NoSync(Reducer& reducer) noexcept;
    Reducer& reducer_;
  };
  // Accumulates gradients over several micro-batches. While the result lives, finish() reduces
  // nothing and returns the samples collected so far on this rank; the caller adds the next
  // micro-batch to what is in the views. The next step without it reduces all, and counts the
  // samples of all. Throws InvalidArgument in mode reproducible: use more shards there.
  [[nodiscard]] NoSync no_sync();

  // Sets how buckets are reduced: see compression.h. Call it between steps. Throws InvalidArgument
  // in mode reproducible, whose promise a hook cannot keep.
  void set_hook(BucketHook hook);
  // Sets what the reducer's thread calls for each bucket in index order as soon as its mean is
  // there, also during backward. The next bucket waits until it returns. Call it between steps.
  void on_bucket_done(BucketCallback callback);

 private:
  std::span<std::byte> grad_view(std::size_t param, DType dtype);
  struct State;
  std::unique_ptr<State> state_;
};

// Checks that all ranks have the same bytes, by a 64-bit hash. Collective. Throws mismatch on every
// rank when they differ; the message names `what` and the ranks that differ from rank 0.
C10D_API void check_same(const ProcessGroup& group, std::string_view what,
                         std::span<const std::byte> bytes);

}}}  // namespace c10d::v0::parallel
