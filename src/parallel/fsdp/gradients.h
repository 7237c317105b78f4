// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "c10d/parallel/fsdp.h"
#include "src/parallel/common/serial_executor.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Sums over the ranks, one after the other, in a thread of its own and on groups of its own: each
// op has the deadline of its group.
class GradientSums {
 public:
  struct Job {
    View arena;                // f32; this rank's slice becomes the mean, the rest is undefined
    std::size_t partials;      // of this rank, in tree order, one behind the other from `arena` on
    std::size_t first, count;  // this rank's slice
    std::span<const std::size_t> counts;  // of the ranks' slices; empty: every rank gets everything
    double divisor;
    std::function<void()> done;  // called in that thread
  };

  // Collective, over both groups.
  GradientSums(const ProcessGroup& group, const ProcessGroup& replicas, const FsdpOptions& options,
               int shards);

  // Its memory must stay until wait() with the number that is returned.
  std::uint64_t submit(Job job);
  // Until that job and all before it are done; throws what one of them failed with.
  void wait(std::uint64_t number) { queue_.wait(number); }
  void abort(std::string_view why) const noexcept;  // all groups: others wait in any of them

 private:
  void sum(const Job& job);

  const ProcessGroup users_;
  const ProcessGroup users_replicas_;
  ProcessGroup group_, replicas_;
  std::optional<TreeSum> tree_, replica_tree_;
  DType wire_;
  SerialExecutor queue_;  // last: it uses all of the above
};

}}}  // namespace c10d::v0::parallel
