// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/progress_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>

namespace c10d { inline namespace v0 { namespace {

TEST(Progress, CallsAStepUntilItIsDone) {
  std::latch finished(1);
  int calls = 0;
  add_progress([&] {
    if (++calls < 200) return calls % 2 == 0 ? Poll::idle : Poll::busy;
    finished.count_down();
    return Poll::done;
  });
  finished.wait();
  EXPECT_EQ(calls, 200);
}

TEST(Progress, RunsAllStepsOnOneThreadInTurns) {
  constexpr int kSteps = 8;
  std::latch finished(kSteps);
  std::atomic<int> inside{0};
  std::atomic<int> left{kSteps};
  for (int i = 0; i < kSteps; ++i)
    add_progress([&, calls = 0]() mutable {
      EXPECT_EQ(inside.fetch_add(1), 0);
      inside.fetch_sub(1);
      // No step ends before all have been called: they take turns.
      if (++calls == 1) left.fetch_sub(1);
      if (left.load() != 0) return Poll::idle;
      finished.count_down();
      return Poll::done;
    });
  finished.wait();
}

TEST(Progress, AStepMayAddAnother) {
  std::latch finished(1);
  add_progress([&] {
    add_progress([&] {
      finished.count_down();
      return Poll::done;
    });
    return Poll::done;
  });
  finished.wait();
}

TEST(Progress, NoticesANewStepWhileTheOthersAreIdle) {
  std::atomic<bool> stop{false};
  std::latch idle_ended(1);
  add_progress([&] {
    if (!stop.load()) return Poll::idle;
    idle_ended.count_down();
    return Poll::done;
  });
  for (int i = 0; i < 20; ++i) {
    std::latch finished(1);
    add_progress([&] {
      finished.count_down();
      return Poll::done;
    });
    finished.wait();
  }
  stop.store(true);
  idle_ended.wait();
}

TEST(Progress, DropsAStepThatIsDone) {
  auto held = std::make_shared<std::atomic<int>>(0);
  const std::weak_ptr<std::atomic<int>> watched = held;
  add_progress(
      [kept = std::move(held)] { return kept->fetch_add(1) > 3 ? Poll::done : Poll::busy; });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!watched.expired() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(watched.expired());
}

#if defined(__SANITIZE_THREAD__)
#define C10D_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define C10D_THREAD_SANITIZER 1
#endif
#endif

TEST(Progress, AForkedChildHasAThreadOfItsOwn) {
#ifdef C10D_THREAD_SANITIZER
  GTEST_SKIP() << "no threads after fork under this sanitizer";
#endif
  std::latch warm(1);
  add_progress([&] {
    warm.count_down();
    return Poll::done;
  });
  warm.wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);  // should it hang
    std::latch finished(1);
    add_progress([&] {
      finished.count_down();
      return Poll::done;
    });
    finished.wait();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}}}  // namespace c10d::v0
