// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>

#include "c10d/spi/control.h"
#include "src/sync/flags.h"

namespace c10d { inline namespace v0 {

using Doorbell = BasicDoorbell<HostMemory>;
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

inline void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Between two polls of a socket by a thread that has polled for so long: it has its CPU to itself
// at first, then lets others use it, for the rank that it waits for may be there.
inline void pause_between_polls(Duration polled) noexcept {
  constexpr std::chrono::microseconds kAlone{20};
  polled < kAlone ? pause_cpu() : std::this_thread::yield();
}

// How long a thread sleeps at a time that nobody wakes for all that it waits for: a part of the
// time that it has waited, so that it is late by a part of that.
inline Duration nap_after(Duration waited, Duration shortest, Duration longest) noexcept {
  constexpr int kPart = 16;
  return std::clamp(waited / kPart, shortest, longest);
}

// Begins to fetch cache lines that this thread writes next, and others have had since it did last.
inline void fetch_for_writing(const void* first, std::size_t bytes = 1) noexcept {
  constexpr std::size_t kLine = 64;
  for (std::size_t at = 0; at < bytes; at += kLine) {
    const char* const line = static_cast<const char*>(first) + at;
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*line));  // not of every compiler's
#else
    __builtin_prefetch(line, 1);
#endif
  }
}

// How a wait goes from fast to patient: polls, yields, sleeps. Between two polls lie `pauses` of
// the CPU: loads without a gap hold up the very line that they wait for (docs/internals/flags.md).
struct WaitPolicy {
  static constexpr int kFirstPolls = 64;  // of a thread that spins, before it rings its doorbell
  // The same in a fiber that takes no turns, 40 us, although others of its thread wait meanwhile:
  // beside a thread that computes a nap and what wakes from it take longer than the peer's next
  // piece.
  static constexpr int kFiberPolls = 1024;
  static constexpr int kInlinePolls = 4;  // the first of either, without a call
  int polls = 0;
  int yields = 0;
  int looks = 0;  // polls, where a rank on another CPU is waited for
  int pauses = 1;
  bool spins() const noexcept { return polls > 0; }
  void pause() const noexcept {
    for (int i = 0; i < pauses; ++i) pause_cpu();
  }
};
// With a CPU per rank, spinning costs nobody anything. With fewer, a spinning rank keeps the one
// that it waits for from running.
C10D_API WaitPolicy wait_policy(int ranks, int cpus) noexcept;
C10D_API std::string describe(const WaitPolicy& policy);

// How much of a policy's spinning a thread still does. A thread that spins while others want its
// CPU keeps the very rank from running that it waits for, or somebody else's work. The kernel shows
// this by taking the CPU away. Then spinning is halved, at most twice, until the thread keeps its
// CPU; and it sleeps instead of yielding.
class SpinBudget {
 public:
  // `switches` counts how often the kernel has taken the CPU from this thread.
  constexpr explicit SpinBudget(long (*switches)() noexcept) noexcept : switches_(switches) {}
  WaitPolicy left_of(WaitPolicy policy) const noexcept;
  // After a wait that spun in vain: looks at the counter.
  void spun_in_vain() noexcept;

 private:
  long (*const switches_)() noexcept;
  long seen_ = -1;
  int halvings_ = 0;
};

enum class WaitResult : std::uint8_t { ready, broken, timed_out };

// What a thread does at the end of a wait in which it slept, on the CPU where the kernel woke it.
struct AfterSleep {
  void (*call)(void* state) noexcept = nullptr;
  void* state = nullptr;
};

// What a wait watches besides its own condition.
struct WaitContext {
  const WaitPolicy& policy;
  const Control& control;
  Deadline deadline;
  Doorbell* own =
      nullptr;  // rung before this thread gives its CPU away: a peer may sleep on our flag
  bool elsewhere = false;  // the peer has a CPU of its own, and nobody needs this one meanwhile
  AfterSleep after_sleep = {};
};

WaitResult wait_slowly(const WaitContext& context, Doorbell& doorbell, bool (*ready)(void*),
                       void* state);

// Returns when `ready()`, when the group is broken, or when the deadline has passed. `doorbell`
// belongs to the rank that makes it ready. In a fiber it lets other fibers run instead of blocking.
// A sleep lasts at most a millisecond: the group may break, and deadlines pass, without a ring.
template <class Ready>
WaitResult wait_until(const WaitContext& context, Doorbell& doorbell, Ready&& ready) {
  if (ready()) return WaitResult::ready;
  const int polls = context.policy.spins() ? WaitPolicy::kInlinePolls : 0;
  for (int i = 0; i < polls; ++i) {
    context.policy.pause();
    if (ready()) return WaitResult::ready;
  }
  using Callable = std::remove_reference_t<Ready>;
  return wait_slowly(
      context, doorbell, [](void* state) -> bool { return (*static_cast<Callable*>(state))(); },
      const_cast<void*>(static_cast<const void*>(std::addressof(ready))));
}

}}  // namespace c10d::v0
