// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/backends/native/memory/layout.h"
#include "src/backends/native/memory/symmetric_heap.h"
#include "src/backends/native/plan/algorithm_plan.h"
#include "src/backends/native/plan/latency_matrix.h"
#include "src/net/shared_memory.h"
#include "src/sync/wait.h"

namespace c10d { inline namespace v0 { namespace native {

// A little before the counter wraps, so that almost every group runs through the wrap.
inline constexpr std::uint32_t kFirstEpoch = 0u - 500u;

// One rank's view of its group's shared memory. Holds no thread and no op. An op that runs holds a
// reference, so that its memory stays mapped.
class Team {
 public:
  // Collective: returns when every rank has mapped the segment. `neighbours` is the number of ranks
  // that share the CPUs: of the largest group above this one, or of this one.
  Team(const BackendContext& context, int neighbours);
  // The same over a mapping that the ranks have already.
  Team(const BackendContext& context, int neighbours, std::shared_ptr<SharedMapping> segment);
  // Of the ranks of one host in a group over several: `numbers` are theirs in that group,
  // ascending, and `context` is that of the group but for rank, size and store, which are of these
  // alone.
  Team(const BackendContext& context, int neighbours, const std::vector<int>& numbers,
       Deadline deadline);

  const BackendContext& context() const noexcept { return context_; }
  Control& control() const noexcept { return *context_.control; }
  int rank() const noexcept { return context_.rank; }
  int size() const noexcept { return context_.size; }
  // What the group calls that rank.
  int number(int rank) const noexcept {
    return numbers_.empty() ? rank : numbers_[static_cast<std::size_t>(rank)];
  }
  // The other ranks, from the one after this rank on: ranks start at different peers.
  const std::vector<int>& peers() const noexcept { return peers_; }
  int neighbours() const noexcept { return neighbours_; }
  // More ranks than CPUs.
  bool oversubscribed() const noexcept { return !policy_.spins(); }
  const WaitPolicy& policy() const noexcept { return policy_; }
  const Layout& layout() const noexcept { return layout_; }
  SymmetricHeap& heap() noexcept { return heap_; }
  const Plan& plan() const noexcept { return plan_; }
  // The model that the plan was made with. Only rank 0 has the curves of the tuning file.
  const CostModel& cost_model() const noexcept { return cost_model_; }
  const RoundTrips& round_trips() const noexcept { return trips_; }
  // Whether this process may read the memory of a peer's: see cma.h.
  bool reads(int peer) const noexcept { return reads_[static_cast<std::size_t>(peer)]; }
  // Whether it may write there: no write has failed so far.
  bool writes() const noexcept { return writes_.load(std::memory_order_relaxed); }
  void cannot_write() noexcept { writes_.store(false, std::memory_order_relaxed); }

  RankLines& lines(int rank) const noexcept { return layout_.lines(base_, rank); }
  std::byte* base() const noexcept { return base_; }

  // Only by the collective that runs: one at a time in a group.
  std::uint32_t next_epoch() noexcept { return ++epoch_; }
  std::vector<const std::byte*>& sources() noexcept { return sources_; }
  // Where ranks share CPUs: on which each entered the last op. Once this rank has entered an op
  // they are the same on every rank: two_shot() relies on it.
  std::vector<std::uint32_t>& cpus() noexcept { return cpus_; }

  // Where every rank has a CPU. A rank that slept wakes where the kernel puts it: while another
  // process uses its CPU, on that of the rank that woke it. There the two take turns in every op
  // until the kernel moves one of them. So each says where it is, and one that wakes beside another
  // moves away.
  void note_cpu() noexcept;
  AfterSleep after_sleep() noexcept {
    if (oversubscribed()) return {};
    return {[](void* team) noexcept { static_cast<Team*>(team)->move_apart(); }, this};
  }

  Allocation allocate(std::size_t bytes, Deadline deadline);

 private:
  static constexpr const char* kUnfinished = "did not finish joining the group";

  Team(const BackendContext& context, int neighbours, std::vector<int> numbers, Deadline deadline,
       std::shared_ptr<SharedMapping> segment);
  void claim_own_part();
  void join(Deadline deadline);
  // How many lower ranks may use the same CPUs.
  int place_on_own_cpus() const;
  void move_apart() noexcept;
  void wait_for_peer(int peer, const char* what, Deadline deadline,
                     const std::function<bool()>& ready);
  Failure late(int peer, const char* what) const;
  bool reads_every_peer();
  void agree_on_plan(Deadline deadline);
  void make_plan(Deadline deadline);

  const BackendContext context_;
  const std::vector<int> numbers_;
  const int neighbours_;
  const Layout layout_;
  const std::shared_ptr<SharedMapping> segment_;
  std::byte* const base_;
  int allowed_cpus_ = 0;  // of all ranks together
  WaitPolicy policy_;
  SymmetricHeap heap_;
  Plan plan_;
  CostModel cost_model_{TeamProfile{.ranks = 1}};
  RoundTrips trips_;
  std::vector<bool> reads_;
  std::atomic<bool> writes_{true};
  std::uint64_t word_ = 0;  // see Identity
  std::uint64_t allocations_ = 0;
  std::uint32_t epoch_ = kFirstEpoch;
  std::vector<int> peers_;
  std::vector<const std::byte*> sources_;  // scratch: one pointer per rank
  std::vector<std::uint32_t> cpus_;
};

// Collective, once, before the first op of a group; 10 ms at most, and microseconds where ranks are
// few. Measures nothing where ranks share CPUs (that would measure the scheduler), where they are
// more than kMeasuredRanks, and in a group that breaks.
RoundTrips measure_round_trips(Team& team, Deadline deadline);

}}}  // namespace c10d::v0::native
