// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <span>

#include "c10d/store.h"

namespace c10d::bench {

// What the ranks of one host share beside the backends: a barrier that sleeps in the kernel, an
// agreed start time, the times of each iteration, and a few numbers. It uses nothing of what is
// measured, so that no backend gains or loses by how the ranks meet.
class SharedPage {
 public:
  static constexpr std::uint64_t kMaxIterations = 20000;

  // Collective: rank 0 makes the memory, the others find it through the store.
  SharedPage(Store& store, int rank, int size, Duration timeout);
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  // Every rank sleeps here until all have come. Throws DistTimeoutError. Tells all ranks alike
  // whether the last one came before its `deadline`, in nanoseconds of now().
  bool barrier(std::int64_t deadline = INT64_MAX);
  // A barrier that no rank leaves before all are awake. With more ranks than CPUs, here and in
  // meet(), it is the barrier alone.
  bool wake(std::int64_t deadline);
  // The same, after which all ranks leave within about 0.1 us of each other, each on a CPU of its
  // own: they agree on a start time and watch the clock for it.
  bool meet(std::int64_t deadline);

  // Nanoseconds of the monotonic clock, which all ranks of a host share.
  static std::int64_t now() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  // This rank's start and end of one iteration, what of its CPU time in between was not the op's,
  // and, on a GPU, for how long the calls of the ops kept the thread.
  struct Times {
    std::int64_t start = 0, end = 0, other = 0, calls = 0;
  };
  void record(std::uint64_t iteration, Times times) noexcept;
  // Of any rank; read them after a barrier.
  std::span<const Times> times(int rank, std::uint64_t iterations) const noexcept;

  // Collective: every rank gives a number, every rank gets the sum (hashes may wrap it round); a
  // value of rank 0 to all.
  std::int64_t sum(std::int64_t value);
  std::int64_t from_root(std::int64_t value);

  // Round trip of a flag between ranks 0 and 1 in microseconds, median of at most `rounds`; 0 on
  // other ranks than 0.
  double round_trip(int rounds);

  // CPUs that any of the ranks was started on, and whether these are fewer than the ranks: every
  // rank knows the same, whatever each was bound to.
  int cpu_count() const noexcept { return cpu_count_; }
  bool oversubscribed() const noexcept { return oversubscribed_; }

  // Binds this rank, and the threads that it starts from now on. False when the kernel refuses.
  bool bind(std::span<const int> cpus) noexcept;

 private:
  struct Layout;
  void leave_shared_cpu() noexcept;
  template <class F>
  void spin_until(F&& condition);
  [[noreturn]] void throw_missing(std::uint32_t generation) const;

  int rank_;
  int size_;
  Duration timeout_;
  int cpu_count_ = 1;
  bool oversubscribed_ = false;
  std::size_t bytes_ = 0;
  Layout* page_ = nullptr;
  std::uint32_t wakes_ = 0;
  std::uint32_t starts_ = 0;
  cpu_set_t cpus_;  // those that this rank may use
};

}  // namespace c10d::bench
