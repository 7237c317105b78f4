// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/wait.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <ctime>

#include "src/sync/fiber.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr timespec kLongestSleep = {0, 1'000'000};

// Of one gap between two polls: a pause takes 13 ns on one CPU and 60 on the next.
int measured_pauses() noexcept {
  constexpr std::chrono::nanoseconds kGap{40};
  constexpr int kPauses = 64, kTries = 8, kMost = 16;
  std::chrono::nanoseconds shortest = std::chrono::seconds(1);
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < kPauses; ++k) pause_cpu();
    shortest =
        std::min<std::chrono::nanoseconds>(shortest, std::chrono::steady_clock::now() - start);
  }
  for (int pauses = 1; pauses < kMost; ++pauses)
    if (pauses * shortest >= kPauses * kGap) return pauses;
  return kMost;
}

// Shared between processes, so no FUTEX_PRIVATE_FLAG.
long futex(std::atomic<std::uint32_t>& word, int op, std::uint32_t value,
           const timespec* timeout) noexcept {
  return ::syscall(SYS_futex, &word, op, value, timeout, nullptr, 0);
}

bool is_late(const WaitContext& context) {
  return std::chrono::steady_clock::now() >= context.deadline;
}

long involuntary_switches() noexcept {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

constinit thread_local SpinBudget t_spin_budget(involuntary_switches);

WaitResult wait_in_fiber(const WaitContext& context, bool (*ready)(void*), void* state) {
  for (Poll seen = Poll::busy;; seen = Poll::idle) {
    Fiber::yield(seen);
    if (ready(state)) return WaitResult::ready;
    if (context.control.broken()) return WaitResult::broken;
    if (is_late(context)) return WaitResult::timed_out;
  }
}

WaitResult sleep_until(const WaitContext& context, Doorbell& doorbell, bool (*ready)(void*),
                       void* state) {
  for (;;) {
    if (doorbell.sleep([&] { return ready(state); }, [&] { return context.control.broken(); })) {
      if (context.after_sleep.call != nullptr) context.after_sleep.call(context.after_sleep.state);
      return WaitResult::ready;
    }
    WaitLook::due();
    if (context.control.broken()) return WaitResult::broken;
    if (is_late(context)) return WaitResult::timed_out;
  }
}

}  // namespace

void HostMemory::wait(Atomic<std::uint32_t>& word, std::uint32_t value) noexcept {
  futex(word, FUTEX_WAIT, value, &kLongestSleep);
}

void HostMemory::wake(Atomic<std::uint32_t>& word) noexcept {
  futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

WaitPolicy wait_policy(int ranks, int cpus) noexcept {
  static const int pauses = measured_pauses();
  if (ranks <= cpus) return {.polls = 2500, .yields = 50, .pauses = pauses};
  return {.yields = 200, .looks = 35, .pauses = pauses};
}

std::string describe(const WaitPolicy& policy) {
  return policy.spins() ? fmt::format("spin, {} yields, sleep", policy.yields)
                        : fmt::format("{} yields, sleep (more ranks than CPUs)", policy.yields);
}

WaitPolicy SpinBudget::left_of(WaitPolicy policy) const noexcept {
  // A thread that yields waits for all others; one that slept runs at once.
  if (halvings_ > 0 && policy.spins()) policy.yields = 0;
  policy.polls >>= halvings_;
  return policy;
}

void SpinBudget::spun_in_vain() noexcept {
  constexpr int kMostHalvings = 2;  // beyond, a sleep and its wake-up cost more than they save
  const long now = switches_();
  if (seen_ >= 0) halvings_ = std::clamp(halvings_ + (now != seen_ ? 1 : -1), 0, kMostHalvings);
  seen_ = now;
}

WaitResult wait_slowly(const WaitContext& context, Doorbell& doorbell, bool (*ready)(void*),
                       void* state) {
  const bool in_fiber = Fiber::running();
  const int its_polls =
      in_fiber && !Fiber::takes_turns() ? WaitPolicy::kFiberPolls : WaitPolicy::kFirstPolls;
  const int first_polls = context.policy.spins() ? its_polls : 0;
  for (int i = WaitPolicy::kInlinePolls; i < first_polls; ++i) {
    context.policy.pause();
    if (ready(state)) return WaitResult::ready;
  }
  if (context.own != nullptr) context.own->ring();
  if (in_fiber) return wait_in_fiber(context, ready, state);
  constexpr int kBrokenPeriod = 16;  // polls: seeing a failure a little later costs nobody anything
  constexpr int kClockPeriod = 64;
  const auto step = [&](int i, int clock_period) {
    if (i % kBrokenPeriod == 0 && context.control.broken()) return WaitResult::broken;
    if (i % clock_period == 0 && is_late(context)) return WaitResult::timed_out;
    return WaitResult::ready;
  };
  const bool spins = context.policy.spins();
  const WaitPolicy policy = spins ? t_spin_budget.left_of(context.policy) : context.policy;
  const int polls = policy.polls + (context.elsewhere ? policy.looks : 0);
  for (int i = 1; i <= polls; ++i) {
    policy.pause();
    if (ready(state)) return WaitResult::ready;
    if (const WaitResult end = step(i, kClockPeriod); end != WaitResult::ready) return end;
  }
  if (spins) t_spin_budget.spun_in_vain();
  for (int i = 1; i <= policy.yields; ++i) {
    sched_yield();
    if (ready(state)) return WaitResult::ready;
    if (const WaitResult end = step(i, kBrokenPeriod); end != WaitResult::ready) return end;
  }
  return sleep_until(context, doorbell, ready, state);
}

}}  // namespace c10d::v0
