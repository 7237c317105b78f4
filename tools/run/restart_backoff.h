// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace c10d { inline namespace v0 {

// How long to wait before ranks start again: twice as long each time, so that a program that fails
// at once does not keep the host busy, and from the start again after a run that lasted.
class RestartBackoff {
 public:
  using Time = std::chrono::milliseconds;
  static constexpr Time kFirst{500};
  static constexpr Time kLongest{30'000};
  static constexpr Time kLasting{60'000};

  Time after(std::chrono::steady_clock::duration run) {
    if (run >= kLasting) next_ = kFirst;
    return std::exchange(next_, std::min(2 * next_, kLongest));
  }

 private:
  Time next_ = kFirst;
};

}}  // namespace c10d::v0
