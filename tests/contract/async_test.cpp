// SPDX-License-Identifier: BSD-3-Clause
// Async ops: buffers are safe when an exception comes between start and wait, and no failure is
// silent.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "c10d/wait_hook.h"
#include "tests/contract/interrupted.h"
#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

using std::chrono::milliseconds;

class Async : public OnBackend {};

// Where the exception is caught the buffers are gone: what lies there now is not written.
TEST_P(Async, AnExceptionBetweenStartAndWaitLeavesNoOpOnFreedMemory) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    Latch caught(1);
    run(2, [&](ProcessGroup& group) {
      EXPECT_THROW(shape.interrupted(group), Interrupted);
      if (group.rank() == 0) caught.count_down();
      const std::vector<Values> now(4, Values(kCount, 99));
      caught.wait();
      group.barrier();
      for (const Values& values : now)
        EXPECT_EQ(std::count(values.begin(), values.end(), 99),
                  static_cast<std::ptrdiff_t>(kCount));
      expect_usable(group);
    });
  }
}

// The other rank never takes part: the deadline ends the op, and only then the buffer.
TEST_P(Async, TheDestructorWaitsUntilTheDeadlineEndsTheOp) {
  Latch over(1);
  run(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) return over.wait();
    const auto start = std::chrono::steady_clock::now();
    {
      Values gradient(kCount, 1);
      const Work sum = group.async().all_reduce(gradient, {.timeout = milliseconds(300)});
    }
    EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(300));
    EXPECT_EQ(code_of([&] { group.barrier(); }), Code::timed_out);
    over.count_down();
  });
}

// The failure of an op that nobody waits for, as the count of failures that nobody got.
std::uint64_t unobserved_after(const std::string& backend,
                               const std::function<void(Work work)>& end) {
  const std::uint64_t before = unobserved_failures();
  Latch over(1);
  run_ranks(backend, 2, [&](ProcessGroup& group) {
    if (group.rank() == 1) return over.wait();
    {
      Values gradient(kCount, 1);
      end(group.async().all_reduce(gradient, {.timeout = milliseconds(100)}));
    }
    group = ProcessGroup();
    over.count_down();
  });
  return unobserved_failures() - before;
}

TEST_P(Async, AFailureThatNobodyGotIsCountedAndLogged) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(unobserved_after(GetParam(), [](Work) {}), 1u);
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* part : {"error", "all_reduce", "nobody asked its Work", "call wait()"})
    EXPECT_NE(log.find(part), std::string::npos) << log;
}

TEST_P(Async, DetachTellsTheEndOfTheOpAndAsksForNoFailure) {
  Latch told(1);
  EXPECT_EQ(unobserved_after(GetParam(),
                             [&](Work work) {
                               detach(std::move(work), [&](const Failure* failure) {
                                 EXPECT_NE(failure, nullptr);
                                 told.count_down();
                               });
                               told.wait();
                             }),
            1u);
}

TEST_P(Async, AFailureThatSomebodyGotIsNot) {
  EXPECT_EQ(
      unobserved_after(
          GetParam(), [](Work work) { EXPECT_EQ(code_of([&] { work.wait(); }), Code::timed_out); }),
      0u);
  EXPECT_EQ(unobserved_after(GetParam(),
                             [](Work work) {
                               while (!work.done()) std::this_thread::yield();
                               EXPECT_NE(work.failure(), nullptr);
                             }),
            0u);
  EXPECT_EQ(unobserved_after(GetParam(), [](Work work) { work.on_done([](const Failure*) {}); }),
            0u);
}

TEST_P(Async, WaitAllWaitsForAllAndThrowsTheFirstFailure) {
  run(2, [](ProcessGroup& group) {
    Values first(kCount, 1), second(kCount, 2);
    const Work one = group.async().all_reduce(first);
    const Work two = group.async().all_reduce(second);
    wait_all(one, two);
    EXPECT_EQ(first, Values(kCount, 2));
    EXPECT_EQ(second, Values(kCount, 4));
    std::vector<Work> works;
    works.push_back(group.async().all_reduce(first));
    works.push_back(group.async().all_reduce(second));
    wait_all(works);
    EXPECT_EQ(second, Values(kCount, 8));
  });
  const Work bad = Work::failed({.code = Code::peer_died, .message = "first"});
  const Work worse = Work::failed({.code = Code::mismatch, .message = "second"});
  EXPECT_EQ(failure_of([&] { wait_all(Work(), bad, worse); }).message, "first");
}

TEST_P(Async, WaitAnyReturnsTheOneThatIsDone) {
  Latch answered(1);
  run(2, [&](ProcessGroup& group) {
    std::array<Values, 2> in{Values(10), Values(10)};
    const Values out(10, 7);
    if (group.rank() == 0) {
      group.send(out, 1, 1);
      answered.wait();
      group.send(out, 1, 0);
      return;
    }
    std::vector<Work> works;
    for (const std::uint32_t tag : {0u, 1u}) works.push_back(group.irecv(in[tag], 0, tag));
    EXPECT_EQ(wait_any(works), 1u);
    EXPECT_EQ(in[1], out);
    EXPECT_FALSE(works[0].done());
    EXPECT_EQ(code_of([&] { wait_any(std::span(works).first(1), milliseconds(20)); }),
              Code::timed_out);
    answered.count_down();
    EXPECT_EQ(wait_any(std::span(works).first(1)), 0u);
    EXPECT_THROW(wait_any({}), InvalidArgument);
  });
}

C10D_ON_EACH_BACKEND(Async);

}}  // namespace c10d::contract
