// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/meeting/host_clocks.h"
#include "bench/meeting/meeting.h"
#include "c10d/store.h"

namespace c10d::bench {

// A meeting of ranks on several hosts, over their store: a barrier takes about the round trip of a
// request, and ranks leave it one after the other. To leave together they watch their clocks.
class StoreMeeting final : public Meeting {
 public:
  // Collective. `host` is a number of this rank's host. `store` outlives the meeting, and
  // nobody else uses its keys.
  StoreMeeting(Store& store, int host, int rank, int size, Duration timeout);

  bool is_between_hosts() const noexcept override { return true; }
  using Meeting::barrier;
  // Rank 0 says whether the deadline has passed.
  bool barrier(std::int64_t deadline) override;
  bool wake(std::int64_t deadline) override;
  // As wake(), before the clocks were compared, and with more ranks than CPUs.
  bool meet(std::int64_t deadline) override;
  // Rank 0 listens on MASTER_ADDR for it, the first time.
  Clocks compare_clocks() override;
  void record(std::uint64_t iteration, Times times) noexcept override;
  void share_times(std::uint64_t iterations) override;
  std::span<const Times> times(int rank, std::uint64_t iterations) const noexcept override;
  std::int64_t sum(std::int64_t value) override;
  std::int64_t from_root(std::int64_t value) override;
  double round_trip(int) override { return 0; }

 private:
  std::vector<std::string> gather(std::string_view text);
  std::string key(std::string_view name, int rank) const;
  [[noreturn]] void throw_late();
  void wait_for_all();
  bool is_first_here() const noexcept;
  ClockOffset measure_clock();
  void find_lead();

  Store& store_;
  std::vector<int> first_on_host_;  // by rank: the first rank on its host
  std::unique_ptr<HostClocks> clocks_;
  std::vector<ClockOffset> offsets_;  // by rank; empty: not compared yet
  std::int64_t lead_ = 0;    // ns from rank 0's choice of a start time until every rank knows it
  std::uint64_t round_ = 0;  // of exchanges; two rounds never use the same keys
  std::vector<std::vector<Times>> times_;  // by rank; of others on rank 0 only
};

}  // namespace c10d::bench
