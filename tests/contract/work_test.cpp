// SPDX-License-Identifier: BSD-3-Clause
// work.h: one terminal transition, waits that do not end the op, callbacks that come once, handles
// that may be dropped.
#include "c10d/work.h"

#include <array>
#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include "c10d/spi/work_source.h"
#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

using std::chrono::milliseconds;

// Of an op that may not end as long as it exists: it does not wait.
class Handle {
 public:
  explicit Handle(const WorkSource& source) : work_(source.work()) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { work_.detach(); }
  const Work* operator->() const { return &work_; }

 private:
  Work work_;
};

TEST(Work, IsOkByDefault) {
  const Work work;
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.state(), WorkState::ok);
  EXPECT_EQ(work.failure(), nullptr);
  EXPECT_EQ(work.received().source, -1);
  work.wait();
  work.wait(milliseconds(1));
  work.synchronize_stream(nullptr);
}

TEST(Work, TellsWhomAReceiveMatched) {
  EXPECT_EQ(Work::received({3, 1}).received().source, 3);
  const WorkSource source;
  EXPECT_EQ(Handle(source)->received().source, -1);
  source.complete({5, 1});
  EXPECT_EQ(source.work().received().source, 5);
}

TEST(Work, ThrowsItsFailureAtEveryWait) {
  const Work work = Work::failed({.code = Code::peer_died, .message = "gone", .rank = 4});
  EXPECT_TRUE(work.done());
  for (int i = 0; i < 3; ++i) {
    const Failure failure = failure_of([&] { work.wait(); });
    EXPECT_EQ(failure.code, Code::peer_died);
    EXPECT_EQ(failure.rank, 4);
  }
  EXPECT_EQ(code_of([&] { work.wait(milliseconds(1)); }), Code::peer_died);
  ASSERT_NE(work.failure(), nullptr);
  EXPECT_EQ(work.failure()->message, "gone");
}

TEST(Work, ItsStateSaysWhatToDo) {
  EXPECT_EQ(Work::failed({.code = Code::timed_out}).state(), WorkState::timed_out);
  EXPECT_EQ(Work::failed({.code = Code::revoked}).state(), WorkState::cancelled);
  EXPECT_EQ(Work::failed({.code = Code::destroyed}).state(), WorkState::cancelled);
  EXPECT_EQ(Work::failed({.code = Code::mismatch}).state(), WorkState::failed);
  EXPECT_EQ(Handle(WorkSource())->state(), WorkState::running);
}

// Many threads complete and fail one op while others watch it: one wins, and the state never
// changes after.
TEST(Work, HasExactlyOneTerminalTransition) {
  constexpr int kFinishers = 6, kWatchers = 2, kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    const WorkSource source;
    std::latch start(kFinishers + kWatchers);
    std::atomic<int> wins{0}, calls{0};
    std::atomic<int> winner{-1};
    Handle(source)->on_done([&](const Failure*) { ++calls; });
    run_threads(kFinishers + kWatchers, [&](int i) {
      const Work work = source.work();
      start.arrive_and_wait();
      if (i < kFinishers) {
        const bool won =
            i % 2 == 0 ? source.complete({i, 1}) : source.fail({.code = Code::mismatch, .rank = i});
        if (won) {
          ++wins;
          winner = i;
        }
        return;
      }
      while (!work.done()) {
      }
      const WorkState seen = work.state();
      EXPECT_NE(seen, WorkState::running);
      EXPECT_EQ(work.failure() == nullptr, seen == WorkState::ok);
      EXPECT_EQ(work.state(), seen);
    });
    ASSERT_EQ(wins, 1);
    const Work work = source.work();
    if (winner % 2 == 0) {
      EXPECT_EQ(work.state(), WorkState::ok);
      EXPECT_EQ(work.received().source, winner);
    } else {
      ASSERT_NE(work.failure(), nullptr);
      EXPECT_EQ(work.failure()->rank, winner);
    }
    std::promise<void> after;
    const WorkSource flush;
    Handle(flush)->on_done([&](const Failure*) { after.set_value(); });
    flush.complete();
    after.get_future().wait();  // callbacks come in order, so the first one has been
    EXPECT_EQ(calls, 1);
  }
}

TEST(Work, AWaitThatTimesOutLeavesTheOpGoing) {
  const WorkSource source;
  const Work work = source.work();
  const Failure failure = failure_of([&] { work.wait(milliseconds(1)); });
  EXPECT_EQ(failure.code, Code::timed_out);
  EXPECT_EQ(work.state(), WorkState::running);
  source.complete();
  work.wait(milliseconds(1));
}

TEST(Work, WaitReturnsInEveryWaiter) {
  const WorkSource source;
  std::latch waiting(3);
  std::jthread finisher([&] {
    waiting.wait();
    source.complete();
  });
  run_threads(3, [&](int i) {
    const Work work = source.work();
    waiting.count_down();
    i == 0 ? work.wait(kTimeout) : work.wait();
    EXPECT_TRUE(work.done());
  });
  finisher.join();
}

TEST(Work, WaitDrivesAnOpThatAsksForIt) {
  const WorkSource source;
  int polls = 0;
  source.set_progress(std::make_shared<const std::function<bool()>>([&] {
    if (++polls == 5) source.complete();
    return true;
  }));
  source.work().wait();
  EXPECT_EQ(polls, 5);
}

TEST(Work, ThenIsCalledAtOnceWhenLateAndOnAnotherThreadWhenEarly) {
  const WorkSource source;
  std::promise<std::thread::id> early;
  Handle(source)->on_done([&](const Failure* failure) {
    EXPECT_EQ(failure, nullptr);
    early.set_value(std::this_thread::get_id());
  });
  source.complete();
  EXPECT_FALSE(early.get_future().get() == std::this_thread::get_id());
  bool late = false;
  Handle(source)->on_done([&](const Failure* failure) { late = failure == nullptr; });
  EXPECT_TRUE(late);
  Work().on_done([&](const Failure* failure) { late = failure != nullptr; });
  EXPECT_FALSE(late);
}

TEST(Work, ThenGetsTheFailureEvenWhenAllHandlesAreGone) {
  std::promise<Failure> seen;
  {
    const WorkSource source;
    Handle(source)->on_done([&](const Failure* failure) { seen.set_value(*failure); });
    source.fail({.code = Code::link_lost, .message = "cable", .rank = 1});
  }
  const Failure failure = seen.get_future().get();
  EXPECT_EQ(failure.code, Code::link_lost);
  EXPECT_EQ(failure.message, "cable");
}

TEST(Work, ThenRefusesACallbackWhenTooManyWaitForTheirTurn) {
  std::promise<void> go;
  const std::shared_future<void> gate = go.get_future().share();
  std::atomic<int> called = 0;
  int given = 0;
  const Failure failure = failure_of([&] {
    while (true) {
      const WorkSource source;
      Handle(source)->on_done([&, gate](const Failure*) {
        gate.wait();
        ++called;
      });
      source.complete();
      ++given;
    }
  });
  EXPECT_EQ(failure.code, Code::out_of_resources);
  EXPECT_NE(failure.message.find("callbacks"), std::string::npos) << failure.message;
  EXPECT_GE(given, 1000);
  go.set_value();
  while (called < given) std::this_thread::yield();  // not one of those taken is lost
}

TEST(Work, ACallbackThatThrowsHarmsNobody) {
  const WorkSource first, second;
  Handle(first)->on_done([](const Failure*) { throw std::runtime_error("a callback's own"); });
  Handle(first)->on_done([](const Failure*) { throw 7; });
  std::promise<void> called;
  Handle(second)->on_done([&](const Failure*) { called.set_value(); });
  first.complete();
  second.complete();
  called.get_future().wait();
  first.work().wait();
  Handle(first)->on_done([](const Failure*) { throw std::runtime_error("also when late"); });
}

class WorkOfGroup : public OnBackend {};

TEST_P(WorkOfGroup, DetachedItLosesNothing) {
  run(2, [](ProcessGroup& group) {
    std::vector<std::int32_t> data(1 << 14, 1);
    group.async().all_reduce(data).detach();
    group.barrier();
    group.shutdown();  // waits for pending ops
    EXPECT_EQ(data, std::vector<std::int32_t>(1 << 14, 2));
  });
}

TEST_P(WorkOfGroup, AFailureOfADroppedWorkBreaksTheGroup) {
  std::latch failed(1);
  run(2, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      std::array<float, 2> data{};
      std::promise<void> over;
      group.async().all_reduce(data, {.timeout = milliseconds(200)}).on_done([&](const Failure*) {
        over.set_value();
      });
      over.get_future().wait();
      EXPECT_EQ(code_of([&] { group.barrier(); }), Code::timed_out);
      failed.count_down();
    } else {
      failed.wait();
      EXPECT_EQ(code_of([&] { group.barrier(); }), Code::timed_out);
    }
  });
}

TEST_P(WorkOfGroup, AsyncErrorsComeFromWait) {
  run(2, [](ProcessGroup& group) {
    group.abort();
    std::array<float, 2> data{};
    const Work work = group.async().all_reduce(data);
    EXPECT_EQ(code_of([&] { work.wait(); }), Code::revoked);
    EXPECT_EQ(code_of([&] { work.wait(); }), Code::revoked);
    EXPECT_EQ(work.state(), WorkState::cancelled);
  });
}

TEST_P(WorkOfGroup, AWaitWithATimeoutLeavesTheOpGoing) {
  std::latch waited(1);
  run(2, [&](ProcessGroup& group) {
    std::vector<std::int32_t> data(1000, group.rank() + 1);
    if (group.rank() == 1) waited.wait();
    const Work work = group.async().all_reduce(data);
    if (group.rank() == 0) {
      EXPECT_EQ(code_of([&] { work.wait(milliseconds(20)); }), Code::timed_out);
      EXPECT_EQ(work.state(), WorkState::running);
      EXPECT_EQ(group.failure(), nullptr);
      waited.count_down();
    }
    work.wait();
    EXPECT_EQ(data, std::vector<std::int32_t>(1000, 3));
  });
}

TEST_P(WorkOfGroup, ACallbackMaySubmitOps) {
  run(2, [](ProcessGroup& group) {
    std::vector<std::int32_t> first(10, 1), second(10, 2);
    std::promise<Work> chained;
    group.async().all_reduce(first).on_done([&](const Failure* failure) {
      EXPECT_EQ(failure, nullptr);
      chained.set_value(group.async().all_reduce(second));
    });
    chained.get_future().get().wait();
    EXPECT_EQ(first, std::vector<std::int32_t>(10, 2));
    EXPECT_EQ(second, std::vector<std::int32_t>(10, 4));
  });
}

TEST_P(WorkOfGroup, ManyMayBePending) {
  run(2, [](ProcessGroup& group) {
    constexpr int kOps = 50;
    std::vector<std::vector<std::int32_t>> data;
    for (int i = 0; i < kOps; ++i) data.emplace_back(100, i);
    std::vector<Work> works;
    for (auto& one : data) works.push_back(group.async().all_reduce(one));
    for (int i = kOps - 1; i >= 0; --i) works[static_cast<std::size_t>(i)].wait();
    for (int i = 0; i < kOps; ++i)
      EXPECT_EQ(data[static_cast<std::size_t>(i)], std::vector<std::int32_t>(100, 2 * i));
  });
}

C10D_ON_EACH_BACKEND(WorkOfGroup);

}}  // namespace c10d::contract
