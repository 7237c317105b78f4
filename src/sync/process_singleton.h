// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {

// The one T of this process, made by the first call. Never destroyed: its thread runs until the
// process ends. A forked child has no such thread, and gets a T of its own.
template <class T>
T& of_this_process() {
  struct Made {
    explicit Made(Made* before_) : before(before_) {}
    T value;
    const pid_t owner = getpid();
    Made* const before;  // the parent's: in reach of leak checkers
  };
  static std::atomic<Made*> last{nullptr};
  static Mutex mutex;
  const auto is_ours = [](const Made* made) { return made != nullptr && made->owner == getpid(); };
  Made* made = last.load(std::memory_order_acquire);
  if (is_ours(made)) return made->value;
  MutexLock lock(mutex);
  made = last.load(std::memory_order_acquire);
  if (!is_ours(made)) {
    made = new Made(made);
    last.store(made, std::memory_order_release);
  }
  return made->value;
}

// Grows in a forked child: groups of the parent, and their ops, are not the child's.
std::uint64_t process_generation() noexcept;

}}  // namespace c10d::v0
