// SPDX-License-Identifier: BSD-3-Clause
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "src/backends/native/memory/cma.h"
#include "tests/unit/backends/native/p2p/exchanges.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 { namespace {

// Whole frames, offers, many turns of the ring.
const std::size_t kCounts[] = {0, 1, 1000, 16000, 16377, 100001, 1000003};

TEST(NativeMessages, BlockingPingPong) {
  as_ranks(2, [](TestRank& self) {
    const int other = 1 - self.rank();
    for (const std::size_t count : kCounts)
      for (int round = 0; round < 3; ++round) {
        Values got(count, -1);
        const Values mine = contribution<std::int32_t>(self.rank() + round, count);
        if (self.rank() == 0) self.run(Send{mine, other, 0});
        EXPECT_EQ(self.run(Recv{got, other, 0}).source, other);
        if (self.rank() == 1) self.run(Send{mine, other, 0});
        EXPECT_EQ(got, contribution<std::int32_t>(other + round, count));
      }
  });
}

TEST(NativeMessages, ShortSendsEndBeforeTheirRecvs) {
  as_ranks(2, [](TestRank& self) {
    const int other = 1 - self.rank();
    const Values mine = contribution<std::int32_t>(self.rank(), 1000);
    self.run(Send{mine, other, 0});
    Values got(1000);
    self.run(Recv{got, other, 0});
    EXPECT_EQ(got, contribution<std::int32_t>(other, 1000));
  });
}

TEST(NativeMessages, MatchByTagInAnyOrder) {
  as_ranks(2, [](TestRank& self) { match_by_tag_in_any_order(self, kCounts); });
}

// As many as may be open: of more, none behind them comes before one of them is taken.
TEST(NativeMessages, ManyLongOnesAreTakenInAnyOrder) {
  as_ranks(2, [](TestRank& self) {
    constexpr std::size_t kLong = 10000;
    std::vector<Values> data(native::kOffers);
    std::vector<Work> works;
    for (std::size_t tag = 0; tag < data.size() && self.rank() == 0; ++tag) {
      data[tag] = contribution<std::int32_t>(static_cast<int>(tag), kLong);
      works.push_back(self.start_async(Send{data[tag], 1, static_cast<std::uint32_t>(tag)}));
    }
    for (std::size_t tag = data.size(); tag-- > 0 && self.rank() == 1;) {
      Values got(kLong, -1);
      self.run(Recv{got, 0, static_cast<std::uint32_t>(tag)});
      EXPECT_EQ(got, contribution<std::int32_t>(static_cast<int>(tag), kLong));
    }
    for (const Work& work : works) work.wait();
  });
}

TEST(NativeMessages, SameTagArrivesInOrderOfSending) {
  as_ranks(2, [](TestRank& self) { arrive_in_order_of_sending(self); });
}

TEST(NativeMessages, RecvFromAnySource) {
  as_ranks(4, [](TestRank& self) {
    for (const std::size_t count : {10u, 50000u}) {
      if (self.rank() != 0) {
        const Values mine = contribution<std::int32_t>(self.rank(), count);
        self.run(Send{mine, 0, 1});
      } else {
        std::vector<bool> seen(4);
        for (int i = 0; i < 3; ++i) {
          Values got(count, -1);
          const Work work = self.start(Recv{got, kAnySource, 1}, i == 1);
          work.wait();
          const int source = work.received().source;
          ASSERT_GT(source, 0);
          EXPECT_EQ(got, contribution<std::int32_t>(source, count));
          EXPECT_FALSE(seen[static_cast<std::size_t>(source)]);
          seen[static_cast<std::size_t>(source)] = true;
        }
      }
      self.run(Barrier{});
    }
  });
}

TEST(NativeMessages, ToOneself) {
  for (const int size : {1, 3})
    as_ranks(size, [](TestRank& self) {
      for (const std::size_t count : kCounts) {
        const Values mine = contribution<std::int32_t>(self.rank(), count);
        Values got(count, -1);
        const Work recv = self.start_async(Recv{got, self.rank(), 9});
        self.run(Send{mine, self.rank(), 9});
        recv.wait();
        EXPECT_EQ(got, mine);
      }
      const Values mine = contribution<std::int32_t>(self.rank(), 100);
      Values got(100, -1);
      self.run(Send{mine, self.rank(), 0});
      self.run(Recv{got, self.rank(), 0});
      EXPECT_EQ(got, mine);
    });
}

// More than the receiver holds without a recv: the sender waits, and nothing is lost.
TEST(NativeMessages, ASenderWaitsWhenTheReceiverHoldsEnough) {
  as_ranks(2, [](TestRank& self) {
    constexpr int kMessages = 200;  // x 60 KB, three times the limit
    if (self.rank() == 0) {
      for (int i = 0; i < kMessages; ++i) {
        const Values out(15000, i);
        self.run(Send{out, 1, 1});
      }
    } else {
      Values got(15000);
      Values first(1, -1);
      const Work never_first = self.start_async(Recv{first, 0, 2});
      for (int i = 0; i < kMessages; ++i) {
        self.run(Recv{got, 0, 1});
        ASSERT_EQ(got, Values(15000, i));
      }
      EXPECT_FALSE(never_first.done());
      self.run(Barrier{});
      never_first.wait();
      EXPECT_EQ(first[0], 77);
      return;
    }
    self.run(Barrier{});
    const Values last(1, 77);
    self.run(Send{last, 1, 2});
  });
}

TEST(NativeMessages, AllPairsAtOnceInRandomOrder) {
  as_ranks(5, [](TestRank& self) {
    struct Item {
      int peer;
      std::uint32_t tag;
      bool is_send;
      Values data;
      Work work;
    };
    std::vector<Item> items;
    for (int peer = 0; peer < self.size(); ++peer)
      for (std::uint32_t tag = 0; tag < 6; ++tag) {
        const std::size_t count = kCounts[tag];
        items.push_back({peer, tag, false, Values(count, -1), {}});
        items.push_back(
            {peer, tag, true, contribution<std::int32_t>(self.rank() + peer, count), {}});
      }
    std::shuffle(items.begin(), items.end(), std::mt19937(static_cast<unsigned>(self.rank())));
    for (Item& item : items)
      item.work = item.is_send ? self.start_async(Send{item.data, item.peer, item.tag})
                               : self.start_async(Recv{item.data, item.peer, item.tag});
    Values sum(5000, 1);
    self.run(AllReduce{sum, sum, ReduceOp::sum});
    EXPECT_EQ(sum, Values(5000, 5));
    for (const Item& item : items) {
      item.work.wait();
      EXPECT_EQ(item.data, contribution<std::int32_t>(self.rank() + item.peer, item.data.size()));
    }
  });
}

TEST(NativeMessages, ALongerMessageOrAnotherDtypeBreaksBothRanks) {
  const auto expect_mismatch = [](std::size_t sent, bool as_float, bool exact) {
    as_ranks(2, [&](TestRank& self) {
      const std::vector<float> floats(1000);
      const Values out(sent);
      Values in(1000);
      const Recv recv{.output = in, .peer = 0, .tag = 3, .exact = exact};
      const Work work = self.rank() == 1 ? self.start(recv, false)
                        : as_float       ? self.start(Send{floats, 1, 3}, false)
                                         : self.start(Send{out, 1, 3}, false);
      const Work after = self.start(Barrier{}, false);
      const Failure* failure = after.failure();
      ASSERT_NE(failure, nullptr);
      EXPECT_EQ(failure->code, Code::mismatch);
      for (const char* text : {"rank 0", "rank 1", "tag 3", "i32 x 1000"})
        EXPECT_NE(failure->message.find(text), std::string::npos) << failure->message;
      if (self.rank() == 1) {
        EXPECT_EQ(work.state(), WorkState::failed);
      }
    });
  };
  expect_mismatch(999, false, true);
  for (const bool exact : {false, true}) {
    expect_mismatch(1001, false, exact);
    expect_mismatch(900000, false, exact);
    expect_mismatch(1000, true, exact);
  }
}

TEST(NativeMessages, ADeadlineEndsSendAndRecv) {
  for (const bool async : {false, true})
    as_ranks(2, [&](TestRank& self) {
      const Duration limit = std::chrono::milliseconds(100);
      Values data(1000000);
      const Work work = self.rank() == 0 ? self.start(Send{data, 1, 1}, async, limit)
                                         : self.start(Recv{data, 0, 2}, async, limit);
      EXPECT_THROW(work.wait(), DistTimeoutError);
    });
}

// What is over within its call is no op that anybody drives.
TEST(NativeMessages, AShortSendAndARecvOfWhatIsThereAreDoneAtOnce) {
  as_ranks(2, [](TestRank& self) {
    const Values mine = contribution<std::int32_t>(self.rank(), 100);
    for (std::uint32_t tag = 0; tag < 100; ++tag)
      EXPECT_TRUE(self.start_async(Send{mine, 1 - self.rank(), tag}).done());
    self.run(Barrier{});
    for (std::uint32_t tag = 100; tag-- > 0;) {
      Values got(100, -1);
      const Work work =
          self.start_async(Recv{got, tag % 2 == 0 ? kAnySource : 1 - self.rank(), tag});
      ASSERT_TRUE(work.done());
      EXPECT_EQ(work.received().source, 1 - self.rank());
      EXPECT_EQ(got, contribution<std::int32_t>(1 - self.rank(), 100));
    }
  });
}

// Where the kernel lets nobody read another's memory, or pids mean other processes here.
TEST(NativeMessages, StreamWhereMemoryIsOutOfReach) {
  as_ranks(3, [](TestRank& self) {
    self.team().lines(self.rank()).identity.word ^= 1;
    self.run(Barrier{});
    const int next = (self.rank() + 1) % 3, last = (self.rank() + 2) % 3;
    for (const std::size_t count : kCounts)
      for (const int peer : {next, last}) {
        Values got(count, -1);
        const Work recv = self.start_async(Recv{got, 3 - self.rank() - peer, 0});
        const Values mine = contribution<std::int32_t>(self.rank(), count);
        self.run(Send{mine, peer, 0});
        recv.wait();
        EXPECT_EQ(got, contribution<std::int32_t>(3 - self.rank() - peer, count));
      }
  });
}

TEST(NativeMessages, ADeadlineOfAnAsyncOpComesWhoeverWaits) {
  for (const bool in_recv : {false, true})
    as_ranks(2, [&](TestRank& self) {
      const auto start = std::chrono::steady_clock::now();
      Values data(1), other(1);
      const Work late =
          self.start(Recv{data, 1 - self.rank(), 1}, true, std::chrono::milliseconds(100));
      if (in_recv) {  // of something else, for much longer
        EXPECT_NE(self.start(Recv{other, 1 - self.rank(), 2}, false).failure(), nullptr);
      }
      while (!late.done() && std::chrono::steady_clock::now() - start < std::chrono::seconds(50))
        std::this_thread::yield();
      ASSERT_NE(late.failure(), nullptr);
      EXPECT_EQ(late.failure()->code, Code::timed_out);
    });
}

TEST(PeerMemory, IsReadableInTheProcessThatIntroducedItself) {
  std::uint64_t word = 0;
  native::Identity identity{};
  native::introduce(identity, word);
  if (!native::is_readable(identity))
    GTEST_SKIP() << "this kernel lets nobody read another's memory";
  native::Identity stranger = identity;
  stranger.word += 1;
  EXPECT_FALSE(native::is_readable(stranger));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  native::Identity gone = identity;
  gone.pid = child;
  EXPECT_FALSE(native::is_readable(gone));
}

// Beyond the first that cannot be read, every message is streamed.
TEST(PeerMemory, WhatCannotBeReadIsStreamed) {
  as_ranks(2, [](TestRank& self) {
    auto& pid = self.team().lines(self.rank()).identity.pid;
    const auto own = pid;
    self.run(Barrier{});
    for (const bool readable : {true, false, true}) {
      pid = readable ? own : 0;
      self.run(Barrier{});
      Values data(100000, self.rank() == 0 ? 7 : 0);
      if (self.rank() == 0)
        self.run(Send{data, 1, 0});
      else
        self.run(Recv{data, 0, 0});
      EXPECT_EQ(data, Values(100000, 7));
      self.run(Barrier{});
    }
  });
}

}}}  // namespace c10d::v0
