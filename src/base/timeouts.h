// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>

#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// Longer than any job, and far from the end of the clock: a longer timeout, such as
// Duration::max(), would overflow the deadline and have passed at once.
inline constexpr Duration kLongestTimeout = std::chrono::hours(24 * 365);
inline constexpr Duration capped(Duration timeout) noexcept {
  return std::min(timeout, kLongestTimeout);
}

}}  // namespace c10d::v0
