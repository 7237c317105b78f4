// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/meeting/connection.h"
#include "c10d/call.h"
#include "c10d/store.h"

namespace c10d::bench {

// This host's monotonic clock shows that of rank 0's host plus `offset`, which is wrong by at most
// `error`. Nanoseconds.
struct ClockOffset {
  std::int64_t offset = 0;
  std::int64_t error = 0;
};

// The monotonic clocks of hosts against that of rank 0, as NTP compares them: over a connection
// from the first rank of each other host, by the fastest of a few round trips. Half of that one is
// how wrong the offset can be, however the way back differs from the way there.
class HostClocks {
 public:
  // Collective over `firsts`, the first rank of each host, of which 0 is one. It listens on
  // `address`. Throws DistNetworkError.
  HostClocks(Store& store, const std::vector<int>& firsts, int rank, const std::string& address,
             Duration timeout);
  // Collective over the same ranks: one host after the other. Throws DistNetworkError.
  ClockOffset measure();

 private:
  int rank_;
  Duration timeout_;
  std::map<int, Connection> connections_;  // by rank; of others than rank 0 only that to it
};

}  // namespace c10d::bench
