// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "c10d/export.h"

namespace c10d::inline v0 {

// steady_clock's nanoseconds for the funnel, which reads them twice a call: in half the time that
// the clock itself takes where the kernel reads it off the CPU's counter, and a few
// microseconds off at most.
C10D_API std::int64_t steady_ns() noexcept;

constexpr double in_seconds(std::int64_t ns) noexcept { return static_cast<double>(ns) / 1e9; }

// Sets the counter by the clock, from the monitor thread, every kMonitorPeriod. steady_ns() asks
// the clock until that was done twice, and when it was not done for 100 ms.
void set_counter() noexcept;

}  // namespace c10d::inline v0
