// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>

#include <cstdint>
#include <span>

namespace c10d::inline v0::native {

// Where ranks share CPUs, the scheduler leaves them where they woke up, up to all of them on one
// CPU for seconds, and each op waits for the longest queue. So they even that out themselves, for
// the scheduler to keep or not: none is bound.
class Evener {
 public:
  // By every rank after the op of `epoch`, in which they ran on `cpus`; these become those of the
  // next op, as far as ranks may move.
  void look(std::uint32_t epoch, std::span<std::uint32_t> cpus, int rank) noexcept;

 private:
  // Looks that are left out: more of them while what was evened out does not stay so.
  unsigned left_out_ = 0;
  unsigned to_leave_out_ = 0;
};

// Moves ranks, the highest first, from CPUs that have more than an equal share of the ranks to
// those of `allowed` that have the fewest. Returns whether any moved.
bool even_out(std::span<std::uint32_t> cpus, const cpu_set_t& allowed) noexcept;

}  // namespace c10d::inline v0::native
