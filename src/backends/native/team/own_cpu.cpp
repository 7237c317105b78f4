// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/team/own_cpu.h"

#include <algorithm>

namespace c10d { inline namespace v0 { namespace native {

OwnCpu::OwnCpu(int place) noexcept {
  CPU_ZERO(&allowed_);
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) return;
  int left = place % std::max(CPU_COUNT(&allowed_), 1);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed_) || left-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    pinned_ = sched_setaffinity(0, sizeof own, &own) == 0;
    return;
  }
}

OwnCpu::~OwnCpu() {
  if (pinned_) sched_setaffinity(0, sizeof allowed_, &allowed_);
}

}}}  // namespace c10d::v0::native
