// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "c10d/parallel/ddp.h"
#include "c10d/parallel/parameters.h"
#include "c10d/parallel/reproducible.h"

namespace c10d { inline namespace v0 { namespace parallel {

// What one replica does in a step. It is used by the thread of that replica only.
class C10D_API Replica {
 public:
  // Number of this replica, from 0 on.
  int index() const noexcept;
  // The shards of the global batch that this replica computes: see samples_of().
  ShardRange shards() const noexcept;
  // Where to write the gradient of `param` for this replica's next shard: the SUM over the samples
  // of that shard, not the mean. Shards come in order, parameters in any order. Throws
  // InvalidArgument for a parameter that does not exist or has all its shards.
  std::span<std::byte> grad_view(std::size_t param);
  // Says that the view of `param` is written, for the next shard. Throws as grad_view().
  void mark_ready(std::size_t param);

 private:
  friend class DataParallel;
  struct State;
  explicit Replica(State& state) noexcept : state_(state) {}
  State& state_;
};

// Data parallelism in one process (torch.nn.DataParallel): replicas of a model are threads that
// read the same weights. The mean gradient is summed along the canonical tree over the shards, so
// it has the same bits as in one thread, and as with Reducer in mode reproducible. One thread at a
// time.
class C10D_API DataParallel {
 public:
  // `shards` of the global batch; 0: one per replica. Throws InvalidArgument for a parameter that
  // is not f32 or f64, or numbers that make no sense.
  DataParallel(int replicas, std::vector<ParamSpec> params, int shards = 0);
  // Ends the threads, which sleep between steps.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Number of shards of the global batch.
  int shards() const noexcept;

  // Runs `work` once per replica, each in a thread of its own that stays the same, and waits for
  // all. `work` returns the number of samples that it took; a replica that took none need not write
  // its views.
  // If replicas throw, throws what the first of them, by index, threw. Throws InvalidArgument that
  // names the parameters that a replica did not mark as ready. The next step starts afresh.
  StepResult step(const std::function<std::int64_t(Replica&)>& work);

  // The mean over all samples of the last step. Throws InvalidArgument for an unknown parameter.
  std::span<const std::byte> gradient(std::size_t param) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}}}  // namespace c10d::v0::parallel
