// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "bench/meeting/meeting.h"
#include "c10d/store.h"

namespace c10d::bench {

// A meeting of the ranks of one host, in memory that they share: the barrier sleeps in the kernel,
// and ranks that leave it agree on a start time and watch the clock for it.
class SharedPage final : public Meeting {
 public:
  // Collective: rank 0 makes the memory, the others find it through the store.
  SharedPage(Store& store, int rank, int size, Duration timeout);
  ~SharedPage() override;

  bool is_between_hosts() const noexcept override { return false; }
  using Meeting::barrier;
  bool barrier(std::int64_t deadline) override;
  // With more ranks than CPUs, here and in meet(), it is the barrier alone.
  bool wake(std::int64_t deadline) override;
  bool meet(std::int64_t deadline) override;
  void record(std::uint64_t iteration, Times times) noexcept override;
  void share_times(std::uint64_t) override { barrier(); }
  std::span<const Times> times(int rank, std::uint64_t iterations) const noexcept override;
  std::int64_t sum(std::int64_t value) override;
  std::int64_t from_root(std::int64_t value) override;
  double round_trip(int rounds) override;

 private:
  struct Layout;
  void leave_shared_cpu() noexcept;
  template <class F>
  void spin_until(F&& condition);
  [[noreturn]] void throw_missing(std::uint32_t generation) const;

  std::size_t bytes_ = 0;
  Layout* page_ = nullptr;
  std::uint32_t wakes_ = 0;
  std::uint32_t starts_ = 0;
};

}  // namespace c10d::bench
