// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>

#include "c10d/call.h"

namespace c10d { inline namespace v0 {

// Longer than any job, and far from the end of the clock: a longer timeout, such as
// Duration::max(), would overflow the deadline and have passed at once.
inline constexpr Duration kLongestTimeout = std::chrono::hours(24 * 365);
inline constexpr Duration clamp_timeout(Duration timeout) noexcept {
  return std::min(timeout, kLongestTimeout);
}

// With a store, where no deadline says more.
inline constexpr std::chrono::seconds kStorePatience{2};

// For a request that needs no wait, of a call with this deadline: also one that is late asks.
inline Duration patience_until(Deadline deadline) {
  return std::max<Duration>(deadline - std::chrono::steady_clock::now(), kStorePatience);
}

}}  // namespace c10d::v0
