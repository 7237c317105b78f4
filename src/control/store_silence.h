// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/control.h"
#include "src/recorder/rank_block.h"

namespace c10d { inline namespace v0 {

// How long a store has left the looks of a control plane without an answer. A rank that was itself
// stopped between two of them knows nothing of that time, so it does not count.
class StoreSilence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // With the look that finds it, within ten seconds of the last answer.
  static constexpr std::chrono::seconds kLongest{7};
  static constexpr std::chrono::seconds kLongestLook{3};

  void end(Time now) {
    last_look_ = now;
    silent_ = {};
  }
  // A look ended without an answer. Whether that is enough.
  bool is_long(Time now) {
    silent_ += std::min<Duration>(now - last_look_, kLongestLook);
    last_look_ = now;
    return silent_ >= kLongest;
  }

 private:
  Time last_look_ = std::chrono::steady_clock::now();
  Duration silent_{};
};

// Whether this rank waits in an op.
bool has_running_op(const RankBlock& block);

inline constexpr std::string_view kLastBeat = "left";  // the last sign of life of a rank

// Who leaves a broken group may serve its store, and end with it: returns when the others have had
// the time to look there for the cause, or all have left. `beats()` is every rank's sign of life.
void let_others_look(const std::function<std::vector<std::string>()>& beats);

// Which ranks cannot be seen without the store. `why` it does not answer.
Failure store_is_silent(const std::string& group, const std::vector<Member>& members,
                        std::string_view why);

}}  // namespace c10d::v0
