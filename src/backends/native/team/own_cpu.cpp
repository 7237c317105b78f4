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

std::optional<std::uint32_t> leave_taken_cpu(const cpu_set_t& taken) noexcept {
  const int here = sched_getcpu();
  if (here < 0 || !CPU_ISSET(static_cast<std::size_t>(here), &taken)) return {};
  cpu_set_t allowed, free;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  CPU_AND(&free, &allowed, &taken);
  CPU_XOR(&free, &free, &allowed);
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return {};
  const int cpu = sched_getcpu();
  sched_setaffinity(0, sizeof allowed, &allowed);
  return cpu < 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(cpu));
}

}}}  // namespace c10d::v0::native
