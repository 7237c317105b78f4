// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "c10d/control.h"

namespace c10d::inline v0 {

// Where waiters sleep until flags change. Lies in zeroed memory that ranks share, beside the flags.
struct Bell {
  std::atomic<std::uint32_t> sleepers;
  std::atomic<std::uint32_t> rings;

  // By the one thread that stored a flag, after the store. Its read-modify-write on `sleepers` and
  // that of a sleeper have an order: either we see the sleeper, or the sleeper sees the flag. So no
  // wake-up is lost, and the call may come long after the store, as long as it comes.
  void ring() noexcept {
    if (sleepers.fetch_add(0, std::memory_order_acq_rel) != 0) wake();
  }
  // The same for a bell that many ranks ring: a plain load. Flags that belong to such a bell are
  // stored and loaded with sequential consistency.
  void ring_shared() noexcept {
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake();
  }

 private:
  void wake() noexcept;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// How a wait goes from fast to patient: polls, polls with a pause, yields, sleeps.
struct WaitPolicy {
  int hot_polls = 0;
  int pauses = 0;
  int yields = 0;
  bool spins() const noexcept { return hot_polls + pauses > 0; }
};
// With a CPU per rank, spinning costs nobody anything. With fewer, a spinning rank keeps the one
// that it waits for from running.
WaitPolicy wait_policy(int ranks, int cpus) noexcept;
std::string describe(const WaitPolicy& policy);

enum class WaitResult : std::uint8_t { ready, broken, timed_out };

// What a wait watches besides its own condition.
struct WaitContext {
  const WaitPolicy& policy;
  const Control& control;
  Deadline deadline;
  Bell* own = nullptr;  // rung before this thread gives its CPU away: a peer may sleep on our flag
};

WaitResult wait_slowly(const WaitContext& context, Bell& bell, bool (*ready)(void*), void* state);

// Returns when `ready()`, when the group is broken, or when the deadline has passed. `bell` belongs
// to the rank that makes it ready. In a fiber it lets other fibers run instead of blocking. A sleep
// lasts at most a millisecond: the group may break, and deadlines pass, without a ring.
template <class Ready>
WaitResult wait_until(const WaitContext& context, Bell& bell, Ready&& ready) {
  constexpr int kFirstPolls = 64;
  for (int i = 0; i < kFirstPolls; ++i)
    if (ready()) return WaitResult::ready;
  using Callable = std::remove_reference_t<Ready>;
  return wait_slowly(
      context, bell, [](void* state) -> bool { return (*static_cast<Callable*>(state))(); },
      const_cast<void*>(static_cast<const void*>(std::addressof(ready))));
}

}  // namespace c10d::inline v0
