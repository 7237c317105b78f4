// SPDX-License-Identifier: BSD-3-Clause
// Messages of groups over several hosts.
#include "tests/unit/backends/native/p2p/hosts.h"

#include <sys/socket.h>

#include <atomic>
#include <numeric>
#include <random>
#include <span>

#include "tests/unit/backends/native/p2p/exchanges.h"

namespace c10d { inline namespace v0 { namespace {

// 0 B, 8 B, the longest that travels whole, one element more, 64 KiB, 5 MiB and a little.
const std::size_t kRemoteCounts[] = {0, 2, 8192, 8193, 16384, 1310721};

Values values(int seed, std::size_t count) { return contribution<std::int32_t>(seed, count); }

TEST(MessagesOverHosts, PingPong) {
  as_hosts({0, 1}, [](HostRank& self) {
    const int other = 1 - self.rank();
    for (const std::size_t count : kRemoteCounts)
      for (int round = 0; round < 3; ++round) {
        Values got = space<std::int32_t>(count);
        const Values mine = values(self.rank() + round, count);
        if (self.rank() == 0) self.run(Send{mine, other, 0});
        const Received received = self.run(Recv{got, other, 0});
        EXPECT_EQ(received.source, other);
        EXPECT_EQ(received.count, count);
        if (self.rank() == 1) self.run(Send{mine, other, 0});
        EXPECT_EQ(got, values(other + round, count));
      }
  });
}

TEST(MessagesOverHosts, ShortSendsEndBeforeTheirRecvs) {
  as_hosts({0, 1}, [](HostRank& self) {
    const int other = 1 - self.rank();
    for (const std::size_t count : {0u, 2u, 8192u}) {
      const Values mine = values(self.rank(), count);
      self.run(Send{mine, other, 0});
      Values got = space<std::int32_t>(count);
      self.run(Recv{got, other, 0});
      EXPECT_EQ(got, values(other, count));
    }
  });
}

TEST(MessagesOverHosts, LongOnesCross) {
  as_hosts({0, 1}, [](HostRank& self) {
    const int other = 1 - self.rank();
    for (const std::size_t count : kRemoteCounts) {
      const Values mine = values(self.rank(), count);
      Values got = space<std::int32_t>(count);
      const Work send = self.start_async(Send{mine, other, 0});
      self.run(Recv{got, other, 0});
      send.wait();
      EXPECT_EQ(got, values(other, count));
    }
  });
}

TEST(MessagesOverHosts, MatchByTagInAnyOrder) {
  as_hosts({0, 1}, [](HostRank& self) { match_by_tag_in_any_order(self, kRemoteCounts); });
}

TEST(MessagesOverHosts, SameTagArrivesInOrderOfSending) {
  as_hosts({0, 1}, [](HostRank& self) { arrive_in_order_of_sending(self); });
}

// Rank 0 has rank 1 on its host, and rank 2 on another.
TEST(MessagesOverHosts, AnySourceTakesThoseOfThisHostAndOfOthers) {
  as_hosts({0, 0, 1}, [](HostRank& self) {
    for (const std::size_t count : {2u, 100000u})
      for (const bool async : {false, true}) {
        const auto tag = static_cast<std::uint32_t>(count + (async ? 1 : 0));
        if (self.rank() != 0) {
          const Values mine = values(self.rank(), count);
          self.run(Send{mine, 0, tag});
          continue;
        }
        int sources = 0;
        for (int i = 0; i < 2; ++i) {
          Values got(count, -1);
          const Work work = self.start(Recv{got, kAnySource, tag}, async);
          work.wait();
          const int source = work.received().source;
          EXPECT_EQ(got, values(source, count));
          sources += source;
        }
        EXPECT_EQ(sources, 1 + 2);
      }
  });
}

// The first message meets the recv that was posted first, wherever it comes from.
TEST(MessagesOverHosts, RecvsMatchInTheOrderOfPosting) {
  std::latch posted(2);
  as_hosts({0, 1}, [&](HostRank& self) {
    if (self.rank() == 1) {
      posted.arrive_and_wait();
      for (int i = 0; i < 4; ++i) {
        const Values out(2, i);
        self.run(Send{out, 0, 0});
      }
      return;
    }
    std::vector<Values> got(4, Values(2, -1));
    std::vector<Work> works;
    for (std::size_t i = 0; i < got.size(); ++i)
      works.push_back(self.start_async(Recv{got[i], i % 2 == 0 ? kAnySource : 1, 0}));
    posted.arrive_and_wait();
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], Values(2, i));
  });
}

TEST(MessagesOverHosts, ProbeSeesWhatARecvWouldGet) {
  as_hosts({0, 1, 0}, [](HostRank& self) {
    for (const std::size_t count : {3u, 100000u}) {
      const auto tag = static_cast<std::uint32_t>(count);
      if (self.rank() == 1) {
        const Values out = values(1, count);
        self.run(Send{out, 0, tag});
      } else if (self.rank() == 0) {
        for (const int peer : {1, kAnySource}) {
          std::optional<Received> seen;
          while (!(seen = self.messages().probe(peer, tag))) std::this_thread::yield();
          EXPECT_EQ(seen->source, 1);
          EXPECT_EQ(seen->count, count);
        }
        EXPECT_FALSE(self.messages().probe(1, 5));
        EXPECT_FALSE(self.messages().probe(2, tag));
        Values got(count, -1);
        self.run(Recv{got, 1, tag});
        EXPECT_EQ(got, values(1, count));
        EXPECT_FALSE(self.messages().probe(1, tag));
      }
    }
  });
}

// More than a receiver holds.
constexpr int kFlood = 6000;

std::vector<Work> flood(HostRank& self, int peer, const Values& out) {
  std::vector<Work> works;
  for (int i = 0; i < kFlood; ++i)
    works.push_back(
        self.start_async(Send{std::span(out).subspan(static_cast<std::size_t>(i), 1), peer, 1}));
  return works;
}

void take_flood(HostRank& self, int peer) {
  for (int i = 0; i < kFlood; ++i) {
    Values got(1, -1);
    self.run(Recv{got, peer, 1});
    ASSERT_EQ(got[0], i);
  }
}

TEST(MessagesOverHosts, ASenderWaitsWhenTheReceiverHoldsEnough) {
  std::latch flooded(2);
  as_hosts({0, 1}, [&](HostRank& self) {
    if (self.rank() == 0) {
      Values out(kFlood);
      std::iota(out.begin(), out.end(), 0);
      const std::vector<Work> works = flood(self, 1, out);
      EXPECT_TRUE(works[1000].done());
      EXPECT_FALSE(works[4096].done());
      flooded.arrive_and_wait();
      for (const Work& work : works) work.wait();
    } else {
      Values never(1, -1);
      const Work other = self.start_async(Recv{never, 0, 2});
      flooded.arrive_and_wait();
      take_flood(self, 0);
      EXPECT_FALSE(other.done());
      const Values last(1, 7);
      self.run(Send{last, 0, 3});
      other.wait();
      EXPECT_EQ(never[0], 77);
      return;
    }
    Values got(1, -1);
    self.run(Recv{got, 1, 3});
    EXPECT_EQ(got[0], 7);
    const Values last(1, 77);
    self.run(Send{last, 1, 2});
  });
}

// Short messages that nobody takes do not hold up a long one the other way.
TEST(MessagesOverHosts, ALongMessagePassesAFloodOfOthers) {
  as_hosts({0, 1}, [](HostRank& self) {
    constexpr std::size_t kLong = 1 << 20;
    if (self.rank() == 0) {
      Values out(kFlood);
      std::iota(out.begin(), out.end(), 0);
      const std::vector<Work> works = flood(self, 1, out);
      Values got(kLong, -1);
      self.run(Recv{got, 1, 2});
      EXPECT_EQ(got, values(1, kLong));
      for (const Work& work : works) work.wait();
    } else {
      const Values mine = values(1, kLong);
      self.run(Send{mine, 0, 2});
      take_flood(self, 0);
    }
  });
}

// Blocking, without a recv before all are sent: more than the kernel takes in, less than is held.
TEST(MessagesOverHosts, BothHoldWhatTheOtherSends) {
  as_hosts({0, 1}, [](HostRank& self) {
    const int other = 1 - self.rank();
    constexpr int kMessages = 100;
    for (int i = 0; i < kMessages; ++i) {
      const Values out(8192, i);
      self.run(Send{out, other, 0});
    }
    for (int i = 0; i < kMessages; ++i) {
      Values got(8192, -1);
      self.run(Recv{got, other, 0});
      ASSERT_EQ(got, Values(8192, i));
    }
  });
}

TEST(MessagesOverHosts, AllPairsAtOnceInRandomOrder) {
  as_hosts({0, 1, 2, 0, 1}, [](HostRank& self) {
    struct Item {
      int peer;
      std::uint32_t tag;
      bool is_send;
      Values data;
      Work work;
    };
    std::vector<Item> items;
    for (int peer = 0; peer < self.size(); ++peer)
      for (std::uint32_t tag = 0; tag < std::size(kRemoteCounts); ++tag) {
        const std::size_t count = kRemoteCounts[tag];
        items.push_back({peer, tag, false, space<std::int32_t>(count), {}});
        items.push_back({peer, tag, true, values(self.rank() + peer, count), {}});
      }
    std::shuffle(items.begin(), items.end(), std::mt19937(static_cast<unsigned>(self.rank())));
    for (Item& item : items)
      item.work = item.is_send ? self.start_async(Send{item.data, item.peer, item.tag})
                               : self.start_async(Recv{item.data, item.peer, item.tag});
    for (const Item& item : items) {
      item.work.wait();
      EXPECT_EQ(item.data, values(self.rank() + item.peer, item.data.size()));
    }
  });
}

// The sender has left, and something that it never received lay in its socket.
TEST(MessagesOverHosts, WhatWasSentArrivesAlthoughItsSenderHasLeft) {
  std::latch crossed(2);
  std::atomic<bool> left = false;
  constexpr int kMessages = 60;
  as_hosts({0, 1}, [&](HostRank& self) {
    if (self.rank() == 0) {
      for (int i = 0; i < kMessages; ++i) {
        const Values out(8192, i);
        self.run(Send{out, 1, 0});
      }
      crossed.arrive_and_wait();
      EXPECT_TRUE(
          self.messages().drain(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
      ::shutdown(self.socket_to(1), SHUT_RDWR);
      left = true;
      return;
    }
    const Values unwanted(2, 9);
    self.run(Send{unwanted, 0, 0});
    crossed.arrive_and_wait();
    Values got(8192, -1);
    self.run(Recv{got, 0, 0});  // drives: the rest has to fit into the kernels
    while (!left) self.messages().probe(0, 1);
    for (int i = 1; i < kMessages; ++i) {
      self.run(Recv{got, 0, 0});
      ASSERT_EQ(got, Values(8192, i));
    }
  });
}

// A rank that waits for one on its host drives what goes to others.
TEST(MessagesOverHosts, WaitingOnThisHostDrivesTheOthers) {
  as_hosts({0, 0, 1}, [](HostRank& self) {
    constexpr std::size_t kLong = 1 << 20;
    const Values one(2, 1);
    Values got(2, -1);
    if (self.rank() == 0) {
      const Values mine = values(0, kLong);
      const Work send = self.start_async(Send{mine, 2, 0});
      self.run(Recv{got, 1, 0});  // comes when rank 2 has the message
      send.wait();
    } else if (self.rank() == 1) {
      self.run(Recv{got, 2, 0});
      self.run(Send{one, 0, 0});
    } else {
      Values all(kLong, -1);
      self.run(Recv{all, 0, 0});
      EXPECT_EQ(all, values(0, kLong));
      self.run(Send{one, 1, 0});
    }
  });
}

}}}  // namespace c10d::v0
