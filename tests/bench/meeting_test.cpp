// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/meeting/store_meeting.h"
#include "c10d/error.h"

namespace c10d::bench { namespace {

// Each rank is a thread with a meeting of its own; ranks 0 and 1 are on host 0, the others on 1.
void meet_as(int size, const std::function<void(StoreMeeting&)>& rank_does) {
  const auto store = make_hash_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      StoreMeeting meeting(*store, rank / 2, rank, size, std::chrono::seconds(20));
      rank_does(meeting);
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(StoreMeeting, NumbersReachEveryRankInEveryRound) {
  meet_as(3, [](StoreMeeting& meeting) {
    for (std::int64_t round = 0; round < 50; ++round) {
      EXPECT_EQ(meeting.sum(round + meeting.rank()), 3 * round + 3);
      EXPECT_EQ(meeting.from_root(100 * round + meeting.rank()), 100 * round);
      meeting.barrier();
    }
  });
}

TEST(StoreMeeting, SumsOfHashesWrapRound) {
  meet_as(2, [](StoreMeeting& meeting) {
    EXPECT_EQ(meeting.sum(INT64_MAX), static_cast<std::int64_t>(2 * std::uint64_t{INT64_MAX}));
  });
}

// Rank 0 says it, whatever the others' clocks are.
TEST(StoreMeeting, RankZeroDecidesWhetherADeadlineHasPassed) {
  meet_as(2, [](StoreMeeting& meeting) {
    const bool root = meeting.rank() == 0;
    EXPECT_TRUE(meeting.barrier(root ? Meeting::now() + 1'000'000'000'000 : 0));
    EXPECT_FALSE(meeting.wake(root ? 0 : Meeting::now() + 1'000'000'000'000));
  });
}

TEST(StoreMeeting, RankZeroGetsTheTimesOfAll) {
  meet_as(3, [](StoreMeeting& meeting) {
    for (std::int64_t block = 0; block < 3; ++block) {
      const auto iterations = static_cast<std::uint64_t>(10 - block);
      for (std::uint64_t i = 0; i < iterations; ++i) {
        const std::int64_t mark = 1000 * block + 100 * meeting.rank() + static_cast<int>(i);
        meeting.record(i, {mark, mark + 1, mark + 2, mark + 3});
      }
      meeting.share_times(iterations);
      if (meeting.rank() != 0) continue;
      for (int rank = 0; rank < 3; ++rank)
        for (std::uint64_t i = 0; i < iterations; ++i) {
          const Meeting::Times times = meeting.times(rank, iterations)[i];
          const std::int64_t mark = 1000 * block + 100 * rank + static_cast<int>(i);
          EXPECT_EQ((std::array{times.start, times.end, times.other, times.cpu}),
                    (std::array{mark, mark + 1, mark + 2, mark + 3}));
        }
    }
  });
}

// Here all hosts have one clock.
TEST(StoreMeeting, ClocksAreComparedSoThatRanksLeaveTogether) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  meet_as(5, [&](StoreMeeting& meeting) {
    const Meeting::Clocks clocks = meeting.compare_clocks();
    ASSERT_TRUE(clocks.error) << clocks.why;
    EXPECT_GT(*clocks.error, 0);
    const Meeting::Clocks again = meeting.compare_clocks();
    EXPECT_LE(again.moved, *clocks.error + *again.error);
    const std::int64_t time = Meeting::now();
    meeting.record(0, {time, time + 1, 2, 3});
    meeting.share_times(1);
    if (meeting.rank() != 0) return;
    for (int rank = 0; rank < 5; ++rank)
      EXPECT_LT(std::abs(meeting.times(rank, 1)[0].start - time), 1'000'000'000);
  });
  unsetenv("MASTER_ADDR");
}

TEST(StoreMeeting, WithoutAnAddressClocksAreNotCompared) {
  unsetenv("MASTER_ADDR");
  meet_as(3, [&](StoreMeeting& meeting) {
    const Meeting::Clocks clocks = meeting.compare_clocks();
    EXPECT_FALSE(clocks.error);
    EXPECT_NE(clocks.why.find("MASTER_ADDR"), std::string::npos) << clocks.why;
    EXPECT_TRUE(meeting.meet(Meeting::now() + 1'000'000'000'000));
  });
}

// Of all hosts together, which are one machine here; each host has more ranks than CPUs or not.
TEST(StoreMeeting, CpusAreCountedByHost) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  const int here = CPU_COUNT(&cpus);
  meet_as(3, [&](StoreMeeting& meeting) {
    EXPECT_EQ(meeting.cpu_count(), 2 * here);
    EXPECT_EQ(meeting.oversubscribed(), here < 2);
  });
}

// At the first barrier of a meeting of its own, or of one that stands.
TEST(StoreMeeting, ARankThatDoesNotComeIsNamed) {
  const auto store = make_hash_store();
  EXPECT_THROW(StoreMeeting(*store, 0, 0, 2, std::chrono::milliseconds(50)), DistTimeoutError);
  std::vector<std::string> said(3);
  const auto other = make_hash_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      StoreMeeting meeting(*other, rank, rank, 3, std::chrono::milliseconds(500));
      if (rank == 1) return;
      try {
        meeting.barrier();
      } catch (const DistTimeoutError& error) {
        said[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::size_t rank : {0, 2})
    EXPECT_NE(said[rank].find("rank(s) 1 did not reach"), std::string::npos) << said[rank];
}

}}  // namespace c10d::bench
