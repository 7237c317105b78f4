// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "c10d/parallel/ddp.h"
#include "c10d/parallel/reproducible.h"
#include "src/parallel/task_queue.h"

namespace c10d::inline v0::parallel {

// Sums over the ranks, one after the other, in a thread of its own and on groups of its own: each
// op has the deadline of its group.
class GradientSums {
 public:
  struct Job {
    std::vector<ConstTensor> partials;  // of this rank, in tree order
    Tensor out;
    Counts counts;  // of the ranks' slices; empty: every rank gets everything
    double divisor;
  };

  // Collective, over both groups.
  GradientSums(ProcessGroup& group, ProcessGroup* replicas, ReduceMode mode, int shards);
  // Jobs that are still there fail, on all ranks.
  ~GradientSums();
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  // Its memory must stay until wait() with the number that is returned.
  std::uint64_t submit(Job job);
  // Until that job and all before it are done; throws what one of them failed with.
  void wait(std::uint64_t number) { queue_.wait(number); }
  void abort(std::string_view why) const noexcept;

 private:
  void sum(const Job& job);

  ProcessGroup group_, replicas_;
  std::optional<TreeSum> tree_, replica_tree_;
  TaskQueue queue_;  // last: it uses all of the above
};

}  // namespace c10d::inline v0::parallel
