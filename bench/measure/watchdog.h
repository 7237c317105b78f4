// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace c10d::bench {

// Ends this process with code 124 when what it is doing takes longer than it may: a library that is
// called directly has no deadline of its own, and a benchmark must not hang.
class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on `what` may take so many seconds.
  void expect(std::string what, double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  std::optional<Clock::time_point> deadline_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace c10d::bench
