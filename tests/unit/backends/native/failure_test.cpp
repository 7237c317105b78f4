// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <thread>

#include "src/backends/native/native.h"
#include "src/sync/progress_thread.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 { namespace {

using Values = std::vector<std::int32_t>;

// Every pair of different calls, on every rank, blocking and not.
TEST(NativeFailure, DifferentCallsFailOnEveryRankAndShowBoth) {
  Values a(64), b(128), c(64 * 3);
  std::vector<float> f(64);
  const std::vector<std::pair<Op, Op>> pairs = {
      {AllReduce{a, a, ReduceOp::sum}, AllReduce{a, a, ReduceOp::max}},
      {AllReduce{a, a, ReduceOp::sum}, AllReduce{f, f, ReduceOp::sum}},
      {AllReduce{a, a, ReduceOp::sum}, AllReduce{b, b, ReduceOp::sum}},
      {AllReduce{a, a, ReduceOp::sum}, Broadcast{a, a, 0}},
      {Broadcast{a, a, 0}, Broadcast{a, a, 1}},
      {Reduce{a, a, ReduceOp::sum, 0}, Reduce{a, a, ReduceOp::sum, 2}},
      {Barrier{}, AllGather{c, a}},
  };
  for (const auto& [one, other] : pairs)
    for (const bool async : {false, true})
      as_ranks(3, [&, one = one, other = other](TestRank& self) {
        // The buffers are the op's own on each rank.
        Values space(64 * 3);
        const Op op = std::visit(
            [&](auto mine) -> Op {
              if constexpr (requires { mine.output, mine.input; }) {
                mine.output.data = space.data();
                mine.input.data = space.data();
              }
              return mine;
            },
            self.rank() == 1 ? other : one);
        const Work work = self.start(op, async);
        EXPECT_THROW(work.wait(), DistBackendError);
        ASSERT_NE(work.failure(), nullptr);
        EXPECT_EQ(work.failure()->code, Code::mismatch);
        for (const Op& each : {one, other})
          EXPECT_NE(work.failure()->message.find(describe(signature_of(each, 3))),
                    std::string::npos)
              << work.failure()->message;
      });
}

// Ranks that follow different plans would wait for each other's flags in different places.
TEST(NativeFailure, ADifferentPlanIsAMismatch) {
  as_ranks(3, [](TestRank& self) {
    native::Team& team = self.team();
    std::vector<std::string> warnings;
    if (self.rank() == 1)
      const_cast<native::Plan&>(team.plan()) =
          native::Plan(team.cost_model(), "two_shot/streaming", warnings);
    Values values(100000);
    const Work work = self.start(AllReduce{values, values, ReduceOp::sum}, false);
    ASSERT_NE(work.failure(), nullptr);
    EXPECT_EQ(work.failure()->code, Code::mismatch);
  });
}

TEST(NativeFailure, AllToAllVChecksTheCountsOfEveryPair) {
  as_ranks(3, [](TestRank& self) {
    const Values input(30), small(30);
    Values output(30);
    std::vector<std::size_t> inputs = {10, 10, 10}, outputs = {10, 10, 10};
    if (self.rank() == 2) inputs[1] = 9;
    const Work work = self.start(AllToAllV{output, input, outputs, inputs}, false);
    ASSERT_NE(work.failure(), nullptr);
    EXPECT_EQ(work.failure()->code, Code::mismatch);
    EXPECT_NE(work.failure()->message.find("rank 2 gives 9 elements to rank 1"), std::string::npos)
        << work.failure()->message;
  });
}

TEST(NativeFailure, ADeadlineFailsAllWhoWait) {
  for (const bool async : {false, true})
    as_ranks(3, [&](TestRank& self) {
      if (self.rank() == 2) return;
      Values values(100000);
      const Work work = self.start(AllReduce{values, values, ReduceOp::sum}, async,
                                   std::chrono::milliseconds(50));
      EXPECT_THROW(work.wait(), DistTimeoutError);
      EXPECT_NE(work.failure()->message.find("enter"), std::string::npos);
    });
}

TEST(NativeFailure, ABrokenGroupEndsEveryWait) {
  std::latch waiting(3);
  as_ranks(4, [&](TestRank& self) {
    if (self.rank() == 3) {
      waiting.wait();
      self.control().fail({.code = Code::revoked, .message = "enough"});
      return;
    }
    Values values(100000), more(10), message(1000000);
    const Work sum = self.start_async(AllReduce{values, values, ReduceOp::sum});
    const Work behind = self.start_async(AllReduce{more, more, ReduceOp::sum});
    const Work recv = self.start_async(Recv{message, 3, 0});
    waiting.count_down();
    const Work blocking = self.start(Barrier{}, false);
    for (const Work* work : {&sum, &behind, &recv, &blocking}) {
      EXPECT_THROW(work->wait(), DistBackendError);
      EXPECT_EQ(work->state(), WorkState::cancelled);
      EXPECT_EQ(work->failure()->message, "enough");
    }
  });
}

// The collectives of a group match by order even when another group's come in between the other
// way round.
TEST(NativeAsync, GroupsDoNotWaitForEachOther) {
  const auto fates = std::pair(std::make_shared<GroupFate>(), std::make_shared<GroupFate>());
  const auto first = make_shared_memory("test", native::Layout(2).bytes());
  const auto second = make_shared_memory("test", native::Layout(2).bytes());
  const auto play = [&](int rank) {
    TestRank a(rank, 2, fates.first, first);
    TestRank b(rank, 2, fates.second, second);
    for (int round = 0; round < 20; ++round) {
      Values x(50000, rank), y(50000, rank + 1);
      TestRank& before = rank == 0 ? a : b;
      TestRank& after = rank == 0 ? b : a;
      Values& before_data = rank == 0 ? x : y;
      Values& after_data = rank == 0 ? y : x;
      const Work early = before.start_async(AllReduce{before_data, before_data, ReduceOp::sum});
      const Work late = after.start_async(AllReduce{after_data, after_data, ReduceOp::sum});
      late.wait();
      early.wait();
      EXPECT_EQ(x, Values(50000, 1));
      EXPECT_EQ(y, Values(50000, 3));
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
}

TEST(NativeAsync, OpsStayInOrderAndMayOutliveTheGroup) {
  std::latch queued(3);
  as_ranks(3, [&](TestRank& self) {
    std::vector<Values> data;
    std::vector<Work> works;
    {
      // A copy of the group that goes before its ops are done.
      for (int i = 0; i < 30; ++i) data.emplace_back(static_cast<std::size_t>(1 + i * 500), i);
      for (Values& values : data)
        works.push_back(self.start_async(AllReduce{values, values, ReduceOp::sum}));
    }
    queued.count_down();
    works.back().wait();
    for (std::size_t i = 0; i < data.size(); ++i) {
      EXPECT_TRUE(works[i].done());
      EXPECT_EQ(data[i], Values(data[i].size(), static_cast<int>(3 * i)));
    }
  });
}

// A rank may leave as soon as its own part is done, while others are still inside.
TEST(NativeAsync, ARankMayGoWhileOthersAreInside) {
  for (int round = 0; round < 50; ++round)
    as_ranks(4, [](TestRank& self) {
      Values values(60000, 1);
      self.run(AllReduce{values, values, ReduceOp::sum});
      EXPECT_EQ(values, Values(60000, 4));
    });
}

// A step of the progress thread that does not end while this lives, two minutes at most.
class BusyProgress {
 public:
  BusyProgress() {
    add_progress([state = state_] {
      state->begun.count_down();
      const auto late = std::chrono::steady_clock::now() + std::chrono::minutes(2);
      while (!state->over && std::chrono::steady_clock::now() < late) std::this_thread::yield();
      state->ended = true;
      return Poll::done;
    });
    state_->begun.wait();
  }
  ~BusyProgress() { state_->over = true; }
  BusyProgress(const BusyProgress&) = delete;
  BusyProgress& operator=(const BusyProgress&) = delete;
  bool ended() const { return state_->ended; }

 private:
  struct State {
    std::latch begun{1};
    std::atomic<bool> over{false}, ended{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(NativeAsync, WhoeverWaitsRunsTheOpsThatNobodyHasBegun) {
  std::optional<BusyProgress> busy(std::in_place);
  std::latch waited(3);
  as_ranks(3, [&](TestRank& self) {
    std::vector<Values> data(4, Values(5000, 1));
    std::vector<Work> works;
    for (Values& values : data)
      works.push_back(self.start_async(AllReduce{values, values, ReduceOp::sum}));
    works[2].wait();
    for (const int i : {0, 1, 2}) EXPECT_TRUE(works[static_cast<std::size_t>(i)].done());
    EXPECT_EQ(data[0], Values(5000, 3));
    EXPECT_EQ(data[2], Values(5000, 3));
    EXPECT_FALSE(works[3].done());
    EXPECT_THROW(works[3].wait(std::chrono::milliseconds(1)), DistTimeoutError);
    self.run(AllReduce{data[0], data[0], ReduceOp::sum});  // blocking, behind the fourth
    EXPECT_TRUE(works[3].done());
    EXPECT_EQ(data[0], Values(5000, 9));
    works.push_back(self.start_async(AllReduce{data[1], data[1], ReduceOp::sum}));
    waited.arrive_and_wait();
    if (self.rank() == 0) {
      EXPECT_FALSE(busy->ended());
      busy.reset();
    }
    works.back().wait();
    EXPECT_EQ(data[1], Values(5000, 9));
  });
}

// Whoever runs the ops changes all the time: waiting threads, the caller, the progress thread.
TEST(NativeAsync, ThreadsWaitWhileAnotherStartsOps) {
  constexpr int kOps = 300;
  as_ranks(2, [](TestRank& self) {
    std::vector<Values> data(kOps, Values(100, 1));
    std::vector<Work> works(kOps);
    std::atomic<int> started{0};
    const auto wait_for_half = [&](int first) {
      for (int i = first; i < kOps; i += 2) {
        while (started.load(std::memory_order_acquire) <= i) std::this_thread::yield();
        works[static_cast<std::size_t>(i)].wait();
        EXPECT_EQ(data[static_cast<std::size_t>(i)], Values(100, 2));
      }
    };
    std::thread even(wait_for_half, 0), odd(wait_for_half, 1);
    for (int i = 0; i < kOps; ++i) {
      Values& values = data[static_cast<std::size_t>(i)];
      works[static_cast<std::size_t>(i)] =
          self.start(AllReduce{values, values, ReduceOp::sum}, i % 7 != 6);
      started.store(i + 1, std::memory_order_release);
    }
    even.join();
    odd.join();
  });
}

TEST(NativeBackend, SaysWhatItCannotDo) {
  EXPECT_TRUE(native_supports({.op = OpKind::all_reduce, .dtype = DType::bf16}));
  EXPECT_FALSE(
      native_supports({.op = OpKind::all_reduce, .dtype = DType::i32, .reduce_op = ReduceOp::avg}));
  const Support cuda = native_supports({.op = OpKind::barrier, .device = DeviceType::cuda});
  EXPECT_FALSE(cuda);
  EXPECT_NE(cuda.reason.find("GPU"), std::string::npos);
}

TEST(NativeBackend, RefusesMoreRanksThanItsStagingHasRoomFor) {
  try {
    make_native_backend({.size = 2049, .members = {}});
    FAIL();
  } catch (const DistBackendError& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(error.failure().message.find("at most 2048 ranks, not 2049"), std::string::npos);
  }
}

}}}  // namespace c10d::v0
