// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>

#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace {

using std::chrono::steady_clock;

class BreakableControl final : public Control {
 public:
  std::shared_ptr<const Failure> agree(const Call&, Waiting) override { return nullptr; }
  std::shared_ptr<const Failure> barrier(Deadline) override { return failure(); }
  void announce(const Call&) override {}
  Agreement poll_agreement(const Call&) override { return Agreement::agreed; }
  std::shared_ptr<const Failure> failure() override { return nullptr; }
  bool broken() const noexcept override { return broken_.load(); }
  std::shared_ptr<const Failure> fail(Failure) override {
    broken_.store(true);
    return nullptr;
  }
  Failure timed_out(const Call&, std::string_view) override { return {}; }
  void fail_overdue(OpKind, std::uint64_t, std::string_view) override {}
  Agreement poll_message(OpKind, std::uint64_t) override { return Agreement::agreed; }
  Agreement poll_enqueued(std::uint64_t) override { return Agreement::agreed; }
  void finished(OpKind, std::uint64_t, std::uint64_t, const Failure*) noexcept override {}
  std::shared_ptr<const Failure> resolve_cause(Failure, Duration) override { return nullptr; }

 private:
  std::atomic<bool> broken_{false};
};

Deadline in(std::chrono::milliseconds time) { return steady_clock::now() + time; }
constexpr std::chrono::seconds kLong{30};

class WaitWith : public testing::TestWithParam<WaitPolicy> {
 protected:
  BreakableControl control_;
  Doorbell doorbell_{};
};

TEST_P(WaitWith, ReturnsWhenTheFlagComes) {
  std::atomic<int> flag{0};
  std::thread setter([&] {
    for (int i = 1; i <= 200; ++i) {
      while (flag.load(std::memory_order_acquire) != 2 * i - 1) std::this_thread::yield();
      flag.store(2 * i, std::memory_order_release);
      doorbell_.ring();
    }
  });
  for (int i = 1; i <= 200; ++i) {
    flag.store(2 * i - 1, std::memory_order_release);
    ASSERT_EQ(wait_until({GetParam(), control_, in(kLong)}, doorbell_,
                         [&] { return flag.load(std::memory_order_acquire) == 2 * i; }),
              WaitResult::ready);
  }
  setter.join();
  EXPECT_EQ(doorbell_.sleepers.load(), 0u);
}

TEST_P(WaitWith, ReturnsWhenTheGroupBreaks) {
  std::latch waiting(1);
  std::thread breaker([&] {
    waiting.wait();
    control_.fail({});
  });
  bool first = true;
  EXPECT_EQ(wait_until({GetParam(), control_, in(kLong)}, doorbell_,
                       [&] {
                         if (std::exchange(first, false)) waiting.count_down();
                         return false;
                       }),
            WaitResult::broken);
  breaker.join();
}

TEST_P(WaitWith, ReturnsAtTheDeadline) {
  const auto start = steady_clock::now();
  const std::chrono::milliseconds limit(30);
  EXPECT_EQ(wait_until({GetParam(), control_, start + limit}, doorbell_, [] { return false; }),
            WaitResult::timed_out);
  EXPECT_GE(steady_clock::now() - start, limit);
}

// Two that sleep in turn, and each rings only at its next wait: as long as no ring is lost, a round
// costs two wake-ups and not the longest sleep.
TEST_P(WaitWith, RingsItsOwnBellBeforeItBlocks) {
  Doorbell bells[2] = {};
  std::atomic<int> flags[2] = {};
  const auto play = [&](int me) {
    for (int i = 1; i <= 100; ++i) {
      flags[me].store(i, std::memory_order_release);
      ASSERT_EQ(wait_until({GetParam(), control_, in(kLong), &bells[me]}, bells[1 - me],
                           [&] { return flags[1 - me].load(std::memory_order_acquire) >= i; }),
                WaitResult::ready);
    }
    bells[me].ring();
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
}

TEST_P(WaitWith, LooksWhereItWokeUp) {
  int looks = 0;
  std::atomic<bool> flag{true};
  const WaitContext context{
      .policy = GetParam(),
      .control = control_,
      .deadline = in(kLong),
      .after_sleep = {[](void* state) noexcept { ++*static_cast<int*>(state); }, &looks}};
  const auto wait = [&] { return wait_until(context, doorbell_, [&] { return flag.load(); }); };
  EXPECT_EQ(wait(), WaitResult::ready);
  EXPECT_EQ(looks, 0) << "it did not sleep";
  flag.store(false);
  std::thread setter([&] {
    while (doorbell_.sleepers.load() == 0) std::this_thread::yield();
    flag.store(true);
    doorbell_.ring();
  });
  EXPECT_EQ(wait(), WaitResult::ready);
  EXPECT_EQ(looks, 1);
  setter.join();
}

INSTANTIATE_TEST_SUITE_P(Policies, WaitWith,
                         testing::Values(wait_policy(1, 2), wait_policy(3, 2), WaitPolicy{}));

TEST(Wait, InAFiberLetsOthersRun) {
  BreakableControl control;
  Doorbell doorbell{};
  const WaitPolicy policy = wait_policy(1, 1);
  bool flag = false;
  WaitResult result = WaitResult::broken;
  Fiber waiter([&] {
    result = wait_until({policy, control, in(kLong)}, doorbell, [&] { return flag; });
  });
  EXPECT_EQ(waiter.resume(), Poll::busy);
  EXPECT_EQ(waiter.resume(), Poll::idle);
  flag = true;
  EXPECT_EQ(waiter.resume(), Poll::done);
  EXPECT_EQ(result, WaitResult::ready);
}

long g_switches = 0;

TEST(Wait, SpinsLessWhileTheKernelTakesTheCpuAway) {
  g_switches = 7;  // of a life before the first wait
  SpinBudget budget([]() noexcept { return g_switches; });
  const WaitPolicy whole{.polls = 1024, .yields = 50};
  const auto expect_part = [&](int part) {
    const WaitPolicy left = budget.left_of(whole);
    EXPECT_EQ(left.polls, 1024 / part);
    EXPECT_EQ(left.yields, part == 1 ? 50 : 0);
  };
  budget.spun_in_vain();
  expect_part(1);
  for (const int part : {2, 4, 4, 4}) {
    g_switches += 3;
    budget.spun_in_vain();
    expect_part(part);
  }
  for (const int part : {2, 1, 1}) {
    budget.spun_in_vain();
    expect_part(part);
  }
  g_switches += 1;
  budget.spun_in_vain();
  EXPECT_EQ(budget.left_of({.yields = 200}).yields, 200);  // never spun: its yields are to peers
}

TEST(Wait, SpinsOnlyWithACpuPerRank) {
  EXPECT_TRUE(wait_policy(2, 2).spins());
  EXPECT_FALSE(wait_policy(3, 2).spins());
  EXPECT_NE(describe(wait_policy(2, 2)), describe(wait_policy(3, 2)));
}

}}}  // namespace c10d::v0
