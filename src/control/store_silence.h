// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/capability.h"
#include "c10d/error.h"
#include "src/recorder/rank_block.h"

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

// Whether this rank waits in an op.
bool has_running_op(const RankBlock& block);

inline constexpr std::string_view kLastBeat = "left";  // the last heartbeat of a rank

// A rank that leaves a broken group may serve its store, which ends with it. Returns when the
// others have had the time to poll the store for the cause, or all have left. `beats()` is every
// rank's heartbeat.
void wait_for_others_to_poll(const std::function<std::vector<std::string>()>& beats);

// Which ranks cannot be seen without the store. `why` it does not answer.
Failure store_is_silent(const std::string& group, const std::vector<Member>& members,
                        std::string_view why);

}}  // namespace c10d::v0
