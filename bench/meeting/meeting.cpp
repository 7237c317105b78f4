// SPDX-License-Identifier: BSD-3-Clause
#include "bench/meeting/meeting.h"

#include <fmt/format.h>

#include "c10d/error.h"

namespace c10d::bench {

Meeting::Meeting(int rank, int size, Duration timeout)
    : rank_(rank), size_(size), timeout_(timeout) {
  CPU_ZERO(&cpus_);
  sched_getaffinity(0, sizeof cpus_, &cpus_);
}

bool Meeting::bind(std::span<const int> cpus) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) return false;
  cpus_ = set;
  return true;
}

void Meeting::throw_missing(const std::vector<int>& ranks) const {
  throw_failure({Code::timed_out,
                 fmt::format("rank(s) {} did not reach the benchmark's own barrier within {} s",
                             fmt::join(ranks, ", "),
                             std::chrono::duration_cast<std::chrono::seconds>(timeout_).count()),
                 ranks.empty() ? -1 : ranks.front()});
}

}  // namespace c10d::bench
