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

// One replica's side of a step; used by its thread only.
class C10D_API Replica {
 public:
  int index() const noexcept;
  // Of the global batch; cut it with samples_of(batch, total shards, shard).
  ShardRange shards() const noexcept;
  // As Reducer: for each own shard in order, in any order of parameters, write the SUM over the
  // shard's samples, then say so. A mistake is thrown by either as InvalidArgument.
  std::span<std::byte> grad_view(std::size_t param);
  void ready(std::size_t param);

 private:
  friend class DataParallel;
  struct State;
  explicit Replica(State& state) noexcept : state_(state) {}
  State& state_;
};

// The smallest step up from one device: replicas of a model as threads of this process, which read
// the same weights. The mean gradient follows the canonical tree over the shards: the same bits as
// one process, and as Reducer in mode reproducible. One thread at a time.
class C10D_API DataParallel {
 public:
  // shards 0: one per replica. Gradients are f32 or f64. Throws InvalidArgument.
  DataParallel(int replicas, std::vector<ParamSpec> params, int shards = 0);
  ~DataParallel();  // waits for nothing: between steps the threads sleep
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  int shards() const noexcept;

  // Runs `work` once per replica, each in its own thread, always the same one; it returns the
  // number of samples that it took. A replica without samples may leave its views alone. Throws
  // what the first of the replicas (by index) threw, when all have ended; InvalidArgument naming
  // the parameters that a replica did not mark. After that, the next step starts afresh.
  StepResult step(const std::function<std::int64_t(Replica&)>& work);

  // The mean over all samples of the last step. Throws InvalidArgument for an unknown parameter.
  std::span<const std::byte> gradient(std::size_t param) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}}}  // namespace c10d::v0::parallel
