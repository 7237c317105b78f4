// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// Nanoseconds of steady_clock, a few microseconds off at most. Where the kernel keeps time by the
// CPU's counter this takes half the time of reading the clock itself; the funnel reads it twice per
// call.
C10D_API std::int64_t steady_ns() noexcept;

constexpr double in_seconds(std::int64_t ns) noexcept { return static_cast<double>(ns) / 1e9; }

// Compares the counter with the clock; the monitor thread does so every kMonitorPeriod. Before the
// second call, and when the last one is more than 100 ms ago, steady_ns() reads the clock itself.
void calibrate_counter() noexcept;

}}  // namespace c10d::v0
