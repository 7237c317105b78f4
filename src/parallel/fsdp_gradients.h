// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "c10d/parallel/ddp.h"
#include "c10d/parallel/reproducible.h"

namespace c10d::inline v0::parallel {

// Sums over the ranks, one after the other, in a thread of its own and on groups of its own.
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
  void wait(std::uint64_t number);
  void abort(std::string_view why) const noexcept;

 private:
  void serve();
  void sum(const Job& job);

  ProcessGroup group_, replicas_;
  std::optional<TreeSum> tree_, replica_tree_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Job> jobs_;
  std::uint64_t submitted_ = 0, done_ = 0;
  bool is_ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace c10d::inline v0::parallel
