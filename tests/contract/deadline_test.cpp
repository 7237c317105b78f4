// SPDX-License-Identifier: BSD-3-Clause
// No wait without a deadline: who does not arrive is named, the failure is the same on every rank,
// and it stays.
#include <array>
#include <latch>
#include <mutex>
#include <vector>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

constexpr std::chrono::milliseconds kShort{300};

bool says(const Failure& failure, const std::string& text) {
  return failure.message.find(text) != std::string::npos;
}

class Deadlines : public OnBackend {
 public:
  // Three ranks; rank 0 calls nothing before the others have failed. All failures must be one, and
  // name it first: another rank may be late too on a busy machine.
  void one_stays_away(const std::function<void(ProcessGroup&)>& call) const {
    std::latch failed(2);
    std::mutex mutex;
    std::vector<Failure> failures;
    run(3, [&](ProcessGroup& group) {
      if (group.rank() == 0) {
        failed.wait();
      } else {
        EXPECT_THROW(call(group), DistTimeoutError);
        failed.count_down();
      }
      const Failure failure = failure_of([&] { expect_usable(group); });
      const Failure again = failure_of([&] { group.barrier(); });
      EXPECT_EQ(failure.message, again.message);
      const std::lock_guard lock(mutex);
      failures.push_back(failure);
      ASSERT_NE(group.failure(), nullptr);
      failures.push_back(*group.failure());
    });
    ASSERT_EQ(failures.size(), 6u);
    for (const Failure& failure : failures) {
      EXPECT_EQ(failure.code, Code::timed_out);
      EXPECT_EQ(failure.rank, 0);
      EXPECT_NE(failure.pid, 0);
      EXPECT_FALSE(failure.host.empty());
      EXPECT_EQ(failure.message, failures.front().message);
      EXPECT_TRUE(says(failure, "missing: rank 0 ")) << failure.message;
    }
  }

  // Rank 0 would take what rank 1 sends, were it not of another tag.
  void rank_0_receives_too(int source) const {
    Latch begun(1);
    run(2, [&](ProcessGroup& group) {
      std::vector<float> data(std::size_t{16} << 20), received(1);
      if (group.rank() == 1) begun.wait();
      const Duration timeout = group.rank() == 0 ? Duration(kTimeout) : Duration(kShort);
      Work other;
      if (group.rank() == 0) other = group.irecv(received, source, 7, {.timeout = kTimeout});
      const Work work = group.isend(data, 1 - group.rank(), 0, {.timeout = timeout});
      if (group.rank() == 0) begun.count_down();
      const Failure failure = failure_of([&] { work.wait(); });
      EXPECT_EQ(failure.code, Code::timed_out);
      EXPECT_FALSE(says(failure, "both ranks send first")) << failure.message;
      if (group.rank() == 0) {
        EXPECT_THROW(other.wait(), DistTimeoutError);
      }
    });
  }
};

TEST_P(Deadlines, ARankThatDoesNotComeToACollectiveIsNamed) {
  one_stays_away([](ProcessGroup& group) {
    std::array<float, 5> data{};
    group.all_reduce(data, ReduceOp::sum, {.timeout = kShort});
  });
}

TEST_P(Deadlines, ARankThatDoesNotComeToAnAsyncCollectiveIsNamedByWait) {
  one_stays_away([](ProcessGroup& group) {
    std::array<float, 5> data{};
    const Work work = group.async().all_reduce(data, {.timeout = kShort});
    work.wait();
  });
}

TEST_P(Deadlines, TheGroupsTimeoutIsThatOfLaterCalls) {
  one_stays_away([](ProcessGroup& group) {
    group.set_timeout(kShort);
    EXPECT_EQ(group.timeout(), Duration(kShort));
    group.barrier();
  });
}

TEST_P(Deadlines, ASilentSenderIsNamed) {
  one_stays_away([](ProcessGroup& group) {
    std::array<float, 5> data{};
    group.recv(data, 0, 7, {.timeout = kShort});
  });
}

TEST_P(Deadlines, OfTwoRanksThatBothSendFirstTheErrorSaysSo) {
  Latch begun(1);
  run(2, [&](ProcessGroup& group) {
    const std::vector<float> data(std::size_t{16} << 20);  // more than any library takes in
    if (group.rank() == 1) begun.wait();
    const Duration timeout = group.rank() == 0 ? Duration(kTimeout) : Duration(kShort);
    const Work work = group.isend(data, 1 - group.rank(), 0, {.timeout = timeout});
    if (group.rank() == 0) begun.count_down();
    const Failure failure = failure_of([&] { work.wait(); });
    EXPECT_EQ(failure.code, Code::timed_out);
    EXPECT_TRUE(says(failure, "both ranks send first")) << failure.message;
  });
}

TEST_P(Deadlines, ARankThatReceivesTooDoesNotOnlySend) { rank_0_receives_too(1); }

TEST_P(Deadlines, ARankThatReceivesFromAnySourceDoesNotOnlySend) {
  rank_0_receives_too(kAnySource);
}

TEST_P(Deadlines, MonitoredBarrierNamesAllThatAreMissing) {
  std::latch failed(1);
  run(4, [&](ProcessGroup& group) {
    group.monitored_barrier();
    if (group.rank() == 2) {
      const Failure failure = failure_of([&] { group.monitored_barrier(kShort); });
      EXPECT_EQ(failure.code, Code::timed_out);
      for (const char* missing : {"rank 0 ", "rank 1 ", "rank 3 "})
        EXPECT_TRUE(says(failure, missing)) << failure.message;
      EXPECT_FALSE(says(failure, "rank 2 ")) << failure.message;
      failed.count_down();
    } else {
      failed.wait();
    }
    EXPECT_EQ(code_of([&] { group.barrier(); }), Code::timed_out);
    EXPECT_EQ(code_of([&] { group.monitored_barrier(); }), Code::timed_out);
  });
}

TEST_P(Deadlines, ALateRankWithinTheDeadlineIsWaitedFor) {
  std::latch entering(2);
  run(3, [&](ProcessGroup& group) {
    if (group.rank() == 2)
      entering.wait();
    else
      entering.count_down();
    expect_usable(group);
  });
}

TEST_P(Deadlines, ABrokenGroupMakesNoSubgroups) {
  std::latch failed(1);
  run(2, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      EXPECT_THROW(group.barrier({.timeout = kShort}), DistTimeoutError);
      failed.count_down();
    } else {
      failed.wait();
    }
    EXPECT_EQ(code_of([&] { group.new_group({0, 1}); }), Code::timed_out);
    EXPECT_EQ(code_of([&] { group.split(0); }), Code::timed_out);
    EXPECT_EQ(code_of([&] { group.split(std::nullopt); }), Code::timed_out);
    EXPECT_EQ(code_of([&] { group.allocate<float>(4); }), Code::timed_out);
  });
}

// Gloo closes the connections of a rank when one of its ops is late, and tells the others no more
// than that.
TEST_P(Deadlines, OfOneOpIsTheCauseForTheOthersOfItsRank) {
  Latch failed(1);
  run(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) return failed.wait();
    std::vector<float> in(1), out(1 << 22);  // more than a send hands over without a recv
    const Work late = group.async().recv(in, 1, {.timeout = kShort});
    const Work other = group.async().send(out, 1);
    EXPECT_EQ(code_of([&] { other.wait(); }), Code::timed_out);
    const Failure failure = failure_of([&] { late.wait(); });
    EXPECT_EQ(failure.code, Code::timed_out);
    EXPECT_EQ(failure.op, "recv");
    EXPECT_EQ(failure_of([&] { other.wait(); }).message, failure.message);
    failed.count_down();
  });
}

TEST_P(Deadlines, ARankThatDoesNotComeToASplitIsNamed) {
  std::latch failed(1);
  run(2, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      group.set_timeout(kShort);
      const Failure failure = failure_of([&] { group.split(0); });
      EXPECT_EQ(failure.code, Code::timed_out);
      EXPECT_EQ(failure.rank, 1);
      EXPECT_TRUE(says(failure, "rank 1")) << failure.message;
      failed.count_down();
    } else {
      failed.wait();
    }
  });
}

C10D_ON_EACH_BACKEND(Deadlines);

}}  // namespace c10d::contract
