// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace c10d::bench {

Watchdog::Watchdog() : thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::expect(std::string what, double seconds) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                        std::chrono::duration<double>(seconds));
  // A later deadline is looked at when the earlier one has passed.
  const bool sooner = !deadline_ || deadline < *deadline_;
  deadline_ = deadline;
  if (sooner) changed_.notify_one();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!deadline_) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point deadline = *deadline_;
    changed_.wait_until(lock, deadline);
    if (stop_ || !deadline_ || Clock::now() < *deadline_) continue;
    fmt::print(stderr, "c10d-bench: timeout: {} does not end\n", what_);
    std::fflush(stderr);
    _exit(124);  // what hangs would also hang an orderly end
  }
}

}  // namespace c10d::bench
