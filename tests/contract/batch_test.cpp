// SPDX-License-Identifier: BSD-3-Clause
// batch(): ops start together, complete as one Work, and cannot deadlock on each other's order.
#include <array>
#include <latch>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

class Batches : public OnBackend {};

using One = std::array<std::int32_t, 1>;

TEST_P(Batches, OrderOfSendsAndReceivesDoesNotMatter) {
  run(3, [](ProcessGroup& group) {
    for (const bool async : {false, true}) {
      constexpr std::size_t kCount = 1 << 18;  // more than any eager buffer holds
      const int next = (group.rank() + 1) % 3, last = (group.rank() + 2) % 3;
      std::vector<std::int32_t> out(kCount, group.rank()), in(kCount, -1);
      Batch batch = group.batch();
      batch.add(Send{out, next, 0});
      batch.add(Recv{in, last, 0});
      async ? batch.submit_async().wait() : batch.submit();
      EXPECT_EQ(in, std::vector<std::int32_t>(kCount, last));
    }
  });
}

TEST_P(Batches, HoldsCollectivesToo) {
  run(2, [](ProcessGroup& group) {
    One first{1}, second{2};
    Batch batch = group.batch();
    batch.add(AllReduce{first, first, {}});
    batch.add(AllReduce{second, second, ReduceOp::max});
    batch.submit();
    EXPECT_EQ(first[0], 2);
    EXPECT_EQ(second[0], 2);
    EXPECT_EQ(group.sequence(), 2u);
  });
}

TEST_P(Batches, AWrongOpInItStartsNone) {
  run(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      One good{};
      std::array<double, 1> bad{};
      Batch batch = group.batch();
      batch.add(AllReduce{good, good, {}});
      batch.add(AllReduce{bad, good, {}});
      EXPECT_THROW(batch.submit(), InvalidArgument);
    }
    expect_usable(group);
    EXPECT_EQ(group.sequence(), 1u);
  });
}

TEST_P(Batches, AnUnsupportedOpInItStartsNone) {
  run(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      One good{}, bad{};
      Batch batch = group.batch();
      batch.add(AllReduce{good, good, {}});
      batch.add(AllReduce{bad, bad, ReduceOp::avg});  // of integers
      EXPECT_EQ(code_of([&] { batch.submit(); }), Code::unsupported);
    }
    expect_usable(group);
    EXPECT_EQ(group.sequence(), 1u);
  });
}

TEST_P(Batches, DroppedItDoesNothing) {
  run(2, [](ProcessGroup& group) {
    One data{5};
    {
      Batch batch = group.batch();
      batch.add(AllReduce{data, data, {}});
    }
    group.batch().submit();
    expect_usable(group);
    EXPECT_EQ(data[0], 5);
    EXPECT_EQ(group.sequence(), 1u);
  });
}

TEST_P(Batches, FailsAsOne) {
  std::latch failed(1);
  run(2, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      One in{}, too{};
      Batch batch = group.batch({.timeout = std::chrono::milliseconds(200)});
      batch.add(Recv{in, 1, 0});
      batch.add(Recv{too, 1, 1});
      const Work work = batch.submit_async();
      const Failure failure = failure_of([&] { work.wait(); });
      EXPECT_EQ(failure.code, Code::timed_out);
      EXPECT_EQ(failure.rank, 1);
      failed.count_down();
    } else {
      failed.wait();
    }
    EXPECT_EQ(code_of([&] { group.barrier(); }), Code::timed_out);
  });
}

TEST_P(Batches, MayBeUsedAgainAndDoesNothingTwice) {
  run(2, [](ProcessGroup& group) {
    One first{1}, second{1};
    Batch batch = group.batch();
    batch.add(AllReduce{first, first, {}});
    batch.submit();
    batch.submit();
    EXPECT_EQ(group.sequence(), 1u);
    batch.add(AllReduce{second, second, {}});
    batch.submit();
    EXPECT_EQ(group.sequence(), 2u);
    EXPECT_EQ(first[0], 2);
    EXPECT_EQ(second[0], 2);
  });
}

TEST_P(Batches, OneThatWasMovedIsOfNoGroup) {
  run(1, [](ProcessGroup& group) {
    One data{1};
    Batch batch = group.batch();
    batch.add(AllReduce{data, data, {}});
    Batch there = std::move(batch);
    // What moving leaves is a promise.
    // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
    EXPECT_THROW(batch.submit(), InvalidArgument);
    there.submit();
    EXPECT_EQ(group.sequence(), 1u);
  });
}

// The counts are the caller's again when submit() has returned, the buffers are not.
TEST_P(Batches, CountsMayGoOnceItIsSubmitted) {
  run(2, [](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    std::vector<std::size_t> counts{1 << 16, 3};
    std::vector<std::int32_t> own(counts[rank], group.rank() + 1), all(counts[0] + counts[1]);
    Batch batch = group.batch();
    batch.add(AllGatherV{all, own, counts});
    const Work work = batch.submit_async();
    counts.assign(2, 12345);
    work.wait();
    EXPECT_EQ(all.front(), 1);
    EXPECT_EQ(all[(1 << 16) - 1], 1);
    EXPECT_EQ(all[1 << 16], 2);
    EXPECT_EQ(all.back(), 2);
  });
}

C10D_ON_EACH_BACKEND(Batches);

}}  // namespace c10d::contract
