// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>

namespace c10d { inline namespace v0 { namespace native {

// Keeps the calling thread on the CPU numbered `place` among those that it may use, while this
// object exists. Ranks that have just started may share a CPU, and would measure the scheduler.
class OwnCpu {
 public:
  explicit OwnCpu(int place) noexcept;
  ~OwnCpu();
  OwnCpu(const OwnCpu&) = delete;
  OwnCpu& operator=(const OwnCpu&) = delete;

 private:
  cpu_set_t allowed_;
  bool pinned_ = false;
};

// If the calling thread is on one of these CPUs, and may use another one: moves it there, and
// leaves to the kernel where it runs from then on. Returns the CPU that it came to, if it moved.
std::optional<std::uint32_t> leave_taken_cpu(const cpu_set_t& taken) noexcept;

}}}  // namespace c10d::v0::native
