// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/fiber.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace c10d { inline namespace v0 { namespace {

TEST(Fiber, StopsAtEachYieldAndGoesOnFromThere) {
  std::vector<int> steps;
  Fiber fiber([&] {
    steps.push_back(1);
    Fiber::yield(Poll::busy);
    steps.push_back(2);
    Fiber::yield(Poll::idle);
    steps.push_back(3);
  });
  EXPECT_EQ(fiber.resume(), Poll::busy);
  EXPECT_EQ(steps, (std::vector{1}));
  EXPECT_EQ(fiber.resume(), Poll::idle);
  EXPECT_EQ(fiber.resume(), Poll::done);
  EXPECT_EQ(steps, (std::vector{1, 2, 3}));
  EXPECT_THROW(fiber.resume(), std::logic_error);
}

TEST(Fiber, KnowsWhetherItRuns) {
  EXPECT_FALSE(Fiber::running());
  bool inside = false;
  Fiber fiber([&] { inside = Fiber::running(); });
  EXPECT_EQ(fiber.resume(), Poll::done);
  EXPECT_TRUE(inside);
  EXPECT_FALSE(Fiber::running());
}

// A fiber begins in a call of the program, and goes on in a thread of the library.
TEST(Fiber, BlocksSignalsAndItsThreadGetsItsOwnMaskBack) {
  const auto is_blocked = [](int signal) {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    return sigismember(&blocked, signal) == 1;
  };
  const bool before = is_blocked(SIGUSR1);
  std::vector<bool> inside;
  Fiber fiber([&] {
    inside.push_back(is_blocked(SIGUSR1));
    Fiber::yield(Poll::busy);
    inside.push_back(is_blocked(SIGUSR1));
  });
  EXPECT_EQ(fiber.resume(), Poll::busy);
  EXPECT_EQ(is_blocked(SIGUSR1), before);
  EXPECT_EQ(fiber.resume(), Poll::done);
  EXPECT_EQ(is_blocked(SIGUSR1), before);
  EXPECT_EQ(inside, (std::vector{true, true}));
}

TEST(Fiber, OneMayRunInsideAnother) {
  std::string order;
  Fiber inner([&] {
    order += 'b';
    Fiber::yield(Poll::busy);
    order += 'd';
  });
  Fiber outer([&] {
    order += 'a';
    EXPECT_EQ(inner.resume(), Poll::busy);
    order += 'c';
    Fiber::yield(Poll::busy);
    EXPECT_EQ(inner.resume(), Poll::done);
    order += 'e';
  });
  EXPECT_EQ(outer.resume(), Poll::busy);
  EXPECT_EQ(outer.resume(), Poll::done);
  EXPECT_EQ(order, "abcde");
}

TEST(Fiber, CatchesItsOwnExceptions) {
  std::string caught;
  Fiber fiber([&] {
    try {
      Fiber::yield(Poll::busy);
      throw std::runtime_error("inside");
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
  });
  EXPECT_EQ(fiber.resume(), Poll::busy);
  EXPECT_EQ(fiber.resume(), Poll::done);
  EXPECT_EQ(caught, "inside");
}

TEST(Fiber, ManyKeepTheirOwnStacks) {
  constexpr int kFibers = 100;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<int> sums(kFibers);
  for (int id = 0; id < kFibers; ++id)
    fibers.push_back(std::make_unique<Fiber>([id, &sums] {
      volatile int local[512];
      for (int i = 0; i < 512; ++i) local[i] = id;
      for (int round = 0; round < 5; ++round) Fiber::yield(Poll::busy);
      for (int i = 0; i < 512; ++i) sums[static_cast<std::size_t>(id)] += local[i];
    }));
  for (int round = 0; round < 6; ++round)
    for (const auto& fiber : fibers)
      EXPECT_EQ(fiber->resume(), round == 5 ? Poll::done : Poll::busy);
  for (int id = 0; id < kFibers; ++id) EXPECT_EQ(sums[static_cast<std::size_t>(id)], 512 * id);
}

TEST(Fiber, DropsWhatItsBodyHeldWhenItEnds) {
  auto held = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = held;
  Fiber fiber([kept = std::move(held)] { Fiber::yield(Poll::busy); });
  fiber.resume();
  EXPECT_FALSE(watched.expired());
  fiber.resume();
  EXPECT_TRUE(watched.expired());
}

TEST(Fiber, KnowsWhetherItTakesTurns) {
  EXPECT_FALSE(Fiber::takes_turns());
  for (const bool takes_turns : {false, true}) {
    std::optional<bool> known;
    Fiber fiber([&] { known = Fiber::takes_turns(); }, takes_turns);
    fiber.resume();
    EXPECT_EQ(known, takes_turns);
  }
}

TEST(RunInTurns, EachGoesOnUntilItWaits) {
  std::string order;
  const auto body = [&](char name) {
    return [&order, name] {
      for (int i = 0; i < 3; ++i) {
        order += name;
        Fiber::yield(Poll::busy);
      }
    };
  };
  run_in_turns(body('a'), body('b'), [](int) { ADD_FAILURE() << "one of them was busy"; });
  EXPECT_EQ(order, "ababab");
}

TEST(RunInTurns, EachMayWaitForTheOther) {
  int given = 0, taken = 0;
  const auto until = [](const int& count, int wanted) {
    while (count < wanted) Fiber::yield(Poll::idle);
  };
  run_in_turns(
      [&] {
        for (; given < 5; Fiber::yield(Poll::busy)) until(taken, given++);
      },
      [&] {
        for (; taken < 5; Fiber::yield(Poll::busy)) until(given, ++taken);
      },
      [](int) { ADD_FAILURE() << "nobody waits for anything but the other"; });
  EXPECT_EQ(taken, 5);
}

TEST(RunInTurns, RestsWhileBothWait) {
  int left = 3;
  std::vector<int> rests;
  const auto body = [&] {
    while (left > 0) Fiber::yield(Poll::idle);
  };
  run_in_turns(body, body, [&](int times) {
    rests.push_back(times);
    --left;
  });
  EXPECT_EQ(rests, (std::vector{0, 1, 2}));
}

TEST(RunInTurns, GoesOnWithOneWhenTheOtherHasEnded) {
  int turns = 0, rests = 0;
  run_in_turns([] {},
               [&] {
                 for (; turns < 4; ++turns) Fiber::yield(Poll::idle);
               },
               [&](int) { ++rests; });
  EXPECT_EQ(turns, 4);
  EXPECT_EQ(rests, 3) << "not in the round in which the first one ended";
}

TEST(RunInTurns, InAFiberLetsOthersOfTheThreadRun) {
  std::vector<Poll> seen;
  Fiber outer([] {
    const auto body = [] {
      for (int i = 0; i < 2; ++i) Fiber::yield(Poll::busy);
    };
    run_in_turns(body, body, [](int) { Fiber::yield(Poll::idle); });
  });
  do {
    seen.push_back(outer.resume());
  } while (seen.back() != Poll::done);
  EXPECT_EQ(seen, (std::vector{Poll::busy, Poll::busy, Poll::busy, Poll::done}));
}

TEST(Fiber, RunsOnTheProgressThread) {
  std::atomic<int> steps{0};
  run_fiber([&steps] {
    for (int i = 0; i < 10; ++i) {
      steps.fetch_add(1);
      Fiber::yield(Poll::busy);
    }
    steps.store(100);
    steps.notify_all();
  });
  for (int seen = steps.load(); seen != 100; seen = steps.load()) steps.wait(seen);
}

}}}  // namespace c10d::v0
