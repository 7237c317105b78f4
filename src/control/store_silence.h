// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/call.h"
#include "c10d/capability.h"
#include "c10d/error.h"

namespace c10d { inline namespace v0 {

// How long a store has not answered the polls of a control plane. A rank that was itself stopped
// between two polls knows nothing of that time, so it does not count.
class StoreSilence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // With the poll that finds it, within ten seconds of the last answer.
  static constexpr std::chrono::seconds kLongest{7};
  static constexpr std::chrono::seconds kLongestPoll{3};

  void end(Time now) {
    last_poll_ = now;
    silent_ = {};
  }
  // A poll ended without an answer. Returns whether the silence is long enough.
  bool is_long(Time now) {
    silent_ += std::min<Duration>(now - last_poll_, kLongestPoll);
    last_poll_ = now;
    return silent_ >= kLongest;
  }

 private:
  Time last_poll_ = std::chrono::steady_clock::now();
  Duration silent_{};
};

// What a rank has in the store from when it joins, and from when it leaves.
inline constexpr std::string_view kBeat = "here", kLastBeat = "left";

// Which ranks cannot be seen without the store. `why` it does not answer.
Failure store_is_silent(const std::string& group, const std::vector<Member>& members,
                        std::string_view why);

}}  // namespace c10d::v0
