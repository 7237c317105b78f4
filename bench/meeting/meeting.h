// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "c10d/call.h"

namespace c10d::bench {

// How the ranks meet between what is measured: a barrier, the times of each iteration, and a few
// numbers. It uses nothing of what is measured, so that no backend gains or loses by it. Every
// member but the accessors, record() and bind() is collective.
class Meeting {
 public:
  static constexpr std::uint64_t kMaxIterations = 20000;
  static constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

  Meeting(int rank, int size, Duration timeout);
  virtual ~Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // Whether the ranks are on several hosts, whose clocks differ.
  virtual bool is_between_hosts() const noexcept = 0;

  // Every rank sleeps here until all have come. Throws DistTimeoutError. Tells all ranks alike
  // whether they came before the `deadline`, in nanoseconds of now().
  virtual bool barrier(std::int64_t deadline) = 0;
  void barrier() { barrier(kNoDeadline); }
  // A barrier after which ranks are awake together, as far as it works out.
  virtual bool wake(std::int64_t deadline) = 0;
  // The same, after which all ranks leave together, each on a CPU of its own: on one host, within
  // about 0.1 us of each other; on several, see compare_clocks().
  virtual bool meet(std::int64_t deadline) = 0;

  // Compares the clocks of several hosts anew. From the first time on ranks leave meet() together
  // on all of them, and times() of all ranks are of one clock.
  struct Clocks {
    std::optional<std::int64_t> error{};  // ns, between any two ranks; nothing: not comparable
    std::int64_t moved = 0;               // ns, since the last time: the most of any clock
    std::string why{};                    // there is no error
  };
  virtual Clocks compare_clocks() { return {.error = 0}; }

  // Nanoseconds of the monotonic clock, which all ranks of a host share.
  static std::int64_t now() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  // This rank's start and end of one iteration, what of its CPU time in between was not the op's,
  // and what CellRecord::cpu_us is made of.
  struct Times {
    std::int64_t start = 0, end = 0, other = 0, cpu = 0;
  };
  // Of this rank; iteration < kMaxIterations.
  virtual void record(std::uint64_t iteration, Times times) noexcept = 0;
  // After it rank 0 may read the times of that many iterations, until the next barrier.
  virtual void share_times(std::uint64_t iterations) = 0;
  // Of any rank; on rank 0, after share_times().
  virtual std::span<const Times> times(int rank, std::uint64_t iterations) const noexcept = 0;

  // Every rank gives a number, every rank gets the sum (hashes may wrap it round); a value of rank
  // 0 to all.
  virtual std::int64_t sum(std::int64_t value) = 0;
  virtual std::int64_t from_root(std::int64_t value) = 0;

  // Round trip of a flag in memory between ranks 0 and 1 in microseconds, median of at most
  // `rounds`; 0 on other ranks than 0, and where they share no memory.
  virtual double round_trip(int rounds) = 0;

  // CPUs that any of the ranks was started on, and whether these are fewer than the ranks, on any
  // host: every rank knows the same, whatever each was bound to.
  int cpu_count() const noexcept { return cpu_count_; }
  bool oversubscribed() const noexcept { return oversubscribed_; }

  // Binds this rank, and the threads that it starts from now on. False when the kernel refuses.
  bool bind(std::span<const int> cpus) noexcept;

 protected:
  // Of a barrier that these ranks did not reach in time.
  [[noreturn]] void throw_missing(const std::vector<int>& ranks) const;

  int rank_;
  int size_;
  Duration timeout_;
  cpu_set_t cpus_;  // those that this rank may use
  int cpu_count_ = 1;
  bool oversubscribed_ = false;
};

}  // namespace c10d::bench
