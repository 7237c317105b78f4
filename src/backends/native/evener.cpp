// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/evener.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace c10d::inline v0::native {

bool even_out(std::span<std::uint32_t> cpus, const cpu_set_t& allowed) noexcept {
  const auto ranks_on = [&](std::uint32_t cpu) { return std::ranges::count(cpus, cpu); };
  const std::ptrdiff_t count = CPU_COUNT(&allowed);
  if (count == 0) return false;
  const std::ptrdiff_t share = (std::ssize(cpus) + count - 1) / count;
  bool moved = false;
  for (auto cpu = cpus.rbegin(); cpu != cpus.rend(); ++cpu) {
    if (!CPU_ISSET(*cpu, &allowed) || ranks_on(*cpu) <= share) continue;
    std::uint32_t emptiest = *cpu;
    for (std::uint32_t other = 0; other < CPU_SETSIZE; ++other)
      if (CPU_ISSET(other, &allowed) && ranks_on(other) < ranks_on(emptiest)) emptiest = other;
    moved |= emptiest != *cpu;
    *cpu = emptiest;
  }
  return moved;
}

void Evener::look(std::uint32_t epoch, std::span<std::uint32_t> cpus, int rank) noexcept {
  constexpr std::uint32_t kOps = 64;  // from look to look
  constexpr unsigned kMostLeftOut = 255;
  if (epoch % kOps != 0 || left_out_++ < to_leave_out_) return;
  left_out_ = 0;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const std::uint32_t before = cpus[static_cast<std::size_t>(rank)];
  if (!even_out(cpus, allowed)) {
    to_leave_out_ /= 2;
    return;
  }
  to_leave_out_ = std::min(2 * to_leave_out_ + 1, kMostLeftOut);
  const std::uint32_t after = cpus[static_cast<std::size_t>(rank)];
  if (after == before) return;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(after, &there);
  if (sched_setaffinity(0, sizeof there, &there) == 0)
    sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace c10d::inline v0::native
