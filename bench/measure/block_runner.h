// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/measure/buffers.h"
#include "bench/measure/gpu.h"
#include "bench/measure/subject.h"
#include "bench/meeting/meeting.h"
#include "bench/model/options.h"
#include "bench/model/record.h"

namespace c10d::bench {

// One backend on one case: how its iterations run and what comes out of them. Every member is
// collective over the ranks of the meeting, and a rank whose backend failed still takes part in
// the barriers, so that no other rank waits for it.
//
// In a loop ranks synchronise once in a while, only to agree whether to continue. In between, ops
// follow each other as in a program, each timed by itself: ranks come to an op as the backend let
// them out of the last one, on the CPUs where it left them; with Sync::own, out of a barrier of the
// backend, which is not timed.
class BlockRunner {
 public:
  // On a GPU an iteration is a batch of ops, one right after the other on the stream, and the GPU
  // says how long it took.
  struct Settings {
    bool dirty = true;
    Sync sync = Sync::loop;
    std::int64_t start_skew = 0;  // ns: ranks start up to this much late, by chance
    std::uint64_t seed = 0;       // of that chance
    double longest_burst = 0;     // seconds, with more ranks than CPUs; 0: one op in an iteration
    double longest_loop = 0;      // seconds between two barriers, as far as one can tell before
    // On a GPU: ops of a CUDA graph, which is launched in their place; 0: they are called.
    std::uint64_t graph_ops = 0;
  };
  BlockRunner(Meeting& meeting, Subject& subject, Buffers& buffers, Settings settings)
      : meeting_(meeting),
        subject_(subject),
        buffers_(buffers),
        settings_(settings),
        random_(settings.seed * 1000003 + static_cast<std::uint64_t>(meeting.rank())) {
    if (const GpuSeat* seat = buffers.seat()) {
      timer_.emplace(*seat);
      burst_ = runs_of(kBatch);
    }
  }

  // With Settings::graph_ops, and before all else: captures the ops. No rank launches a graph
  // before all ranks have theirs: see failed_anywhere().
  void capture();
  // Shows the subject the ops of all buffer sets.
  void introduce();
  // Runs for about `seconds`, or `fixed` iterations when that is not negative; returns seconds per
  // iteration, waits between iterations included, as rank 0 saw them.
  double warm_up(double seconds, int fixed);
  // `iterations` timed ones, or fewer once `seconds` have passed, but three at least. Only rank 0
  // gets numbers: times, skews, samples. Where ops shall start together on several hosts, and the
  // clocks of these are known worse than to 5 % of the median, the block is measured again, and
  // all later ones are, with starts by barrier.
  CellRecord measure(std::uint64_t iterations, double seconds);

  struct CheckResult {
    std::uint64_t wrong = 0;
    std::uint64_t hash = 0;
    bool ranks_agree = true;  // where every rank must have the same result
  };
  // One untimed op, or each one of a graph, into a poisoned output, compared with the oracle on
  // every rank; before it, with `timed_before`, what the last timed op left.
  CheckResult check(bool timed_before);

  // What this rank's backend failed with, or empty.
  const std::string& failure() const noexcept { return failure_; }
  // Collective: whether it failed on any rank.
  bool failed_anywhere() { return meeting_.sum(failure_.empty() ? 0 : 1) > 0; }

 private:
  // Ops of a batch, where nobody has measured yet how long one takes; and at most, so that none
  // waits for room in the queue of the GPU.
  static constexpr int kBatch = 20, kLargestBatch = 100;
  // Ops that the graphs of a case hold together, or one graph if it holds more.
  static constexpr std::uint64_t kCaptured = 1000;

  template <class F>
  void attempt(F&& f) noexcept;
  void run() noexcept;
  GpuGraph graph_of(std::uint64_t first, std::uint64_t ops);
  // Ops of one run(), and so many runs as have that many ops.
  int ops_of_run() const noexcept { return std::max(1, static_cast<int>(settings_.graph_ops)); }
  int runs_of(int ops) const noexcept { return (ops + ops_of_run() - 1) / ops_of_run(); }
  // Calls f() with the turn of each set of buffers that a check is of.
  template <class F>
  void for_each_checked(F&& f);
  void wait_for_skew();
  bool refreshes_much() const noexcept;
  std::int64_t refresh() noexcept;
  bool meet(std::int64_t deadline);
  void enter_own_barrier();
  Meeting::Times time_ops();
  Meeting::Times time_batch();
  int burst_for(double per_op) const;
  std::uint64_t loop_for(double per_op) const;
  std::uint64_t loop_from(std::uint64_t first, std::uint64_t most, bool record);
  std::uint64_t iterate(std::uint64_t count, std::int64_t deadline, bool record);
  CellRecord measure_block(std::uint64_t iterations, double seconds);
  void summarise(CellRecord& cell) const;

  Meeting& meeting_;
  Subject& subject_;
  Buffers& buffers_;
  Settings settings_;
  std::mt19937_64 random_;
  // The warm-up decides: runs of the ops, or of a graph, in one iteration, and iterations between
  // two barriers.
  int burst_ = 1;
  std::uint64_t loop_ = 1;
  std::optional<double> clock_us_;  // how well clocks of hosts were known at the last comparison
  std::string failure_;
  std::optional<GpuTimer> timer_;
  // Each goes on where the one before ends in the sets of buffers.
  std::vector<GpuGraph> graphs_;
  std::optional<GpuGraph> check_graph_;  // where an op of theirs begins with the result of another
  std::uint64_t next_graph_ = 0;
  std::uint64_t last_turn_ = 0;  // of the set of buffers that the last graph ended with
};

}  // namespace c10d::bench
