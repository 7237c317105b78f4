// SPDX-License-Identifier: BSD-3-Clause
// How messages between hosts fail.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "tests/unit/backends/native/p2p/hosts.h"

namespace c10d { inline namespace v0 { namespace {

using Values = std::vector<std::int32_t>;

// `recv` and `send` of rank 1 and 0 do not fit: both ranks hear of it.
void expect_mismatch(std::size_t sent, bool as_float, bool exact, bool recv_first) {
  std::latch posted(2);
  as_hosts({0, 1}, [&](HostRank& self) {
    const std::vector<float> floats(sent);
    const Values out(sent);
    Values in(1000);
    std::string message;
    if (self.rank() == 0) {
      posted.arrive_and_wait();
      const Op op = as_float ? Op(Send{floats, 1, 3}) : Op(Send{out, 1, 3});
      const Work send = self.start(op, false);  // a short one ends before its recv
      Values never(1);
      const Work work = self.start(Recv{never, 1, 9}, false);
      ASSERT_NE(work.failure(), nullptr);
      message = work.failure()->message;
      EXPECT_EQ(work.failure()->code, Code::mismatch);
      EXPECT_EQ(work.failure()->rank, 0);
    } else {
      const Recv recv{.output = in, .peer = 0, .tag = 3, .exact = exact};
      Work work;
      if (recv_first) work = self.start(recv, true);
      posted.arrive_and_wait();
      if (!recv_first) work = self.start(recv, false);
      while (!work.done()) std::this_thread::yield();
      ASSERT_NE(work.failure(), nullptr);
      message = work.failure()->message;
      EXPECT_EQ(work.failure()->code, Code::mismatch);
    }
    EXPECT_NE(message.find("rank 0 called send("), message.npos) << message;
  });
}

TEST(MessagesOverHostsFail, OtherCountsAndDTypesAreMismatches) {
  for (const bool recv_first : {false, true}) {
    expect_mismatch(1001, false, false, recv_first);
    expect_mismatch(999, false, true, recv_first);
    expect_mismatch(1000, true, false, recv_first);
    expect_mismatch(100000, false, false, recv_first);
    expect_mismatch(100000, true, true, recv_first);
  }
}

// What became of the last call of each rank: `act` of rank 1 ends the connection to rank 0.
void expect_end(Code code, const std::function<void(int socket)>& act,
                const std::function<Work(HostRank&)>& call) {
  std::latch begun(2);
  as_hosts({0, 1}, [&](HostRank& self) {
    if (self.rank() == 1) {
      Values got(2, -1);
      self.run(Recv{got, 0, 0});
      act(self.socket_to(0));
      begun.arrive_and_wait();
      while (!self.control().broken()) std::this_thread::yield();
      return;
    }
    const Values first(2, 1);
    self.run(Send{first, 1, 0});
    begun.arrive_and_wait();
    const Work work = call(self);
    while (!work.done()) std::this_thread::yield();
    ASSERT_NE(work.failure(), nullptr);
    EXPECT_EQ(work.failure()->code, code) << work.failure()->message;
    EXPECT_EQ(work.failure()->rank, 1);
    EXPECT_NE(work.failure()->message.find("rank 1"), std::string::npos) << work.failure()->message;
  });
}

Values g_buffer(100000);

TEST(MessagesOverHostsFail, AConnectionThatEndsIsNamedByWhomNeedsIt) {
  const auto cut = [](int socket) { ::shutdown(socket, SHUT_RDWR); };
  expect_end(Code::link_lost, cut, [](HostRank& self) {
    return self.start(Recv{g_buffer, 1, 0}, false);
  });
  expect_end(Code::link_lost, cut, [](HostRank& self) {
    return self.start(Send{g_buffer, 1, 0}, false);
  });
  for (const bool is_send : {false, true})
    expect_end(Code::link_lost, cut, [is_send](HostRank& self) {
      Work work = self.start_async(is_send ? Op(Send{g_buffer, 1, 0}) : Op(Recv{g_buffer, 1, 0}));
      EXPECT_THROW(work.wait(), DistError);
      return work;
    });
}

// By the progress thread, which has time.
TEST(MessagesOverHostsFail, AConnectionThatEndsIsNamedWhereNobodyWaits) {
  expect_end(
      Code::link_lost, [](int socket) { ::shutdown(socket, SHUT_RDWR); },
      [](HostRank& self) {
        return self.start_async(Recv{g_buffer, 1, 0});
      });
}

TEST(MessagesOverHostsFail, AConnectionThatEndsIsNoFailureWhereNobodyNeedsIt) {
  std::latch cut(3);
  as_hosts({0, 1, 2}, [&](HostRank& self) {
    if (self.rank() == 1) ::shutdown(self.socket_to(0), SHUT_RDWR);
    cut.arrive_and_wait();
    if (self.rank() == 1) return;
    const int other = 2 - self.rank();
    for (int i = 0; i < 100; ++i) {
      const Values out(2, i);
      self.run(Send{out, other, 0});
      Values got(2, -1);
      const int from = i % 2 == 0 ? kAnySource : other;
      EXPECT_EQ(self.run(Recv{got, from, 0}).source, other);
      EXPECT_EQ(got[0], i);
    }
    EXPECT_FALSE(self.control().broken());
  });
}

TEST(MessagesOverHostsFail, GarbageIsCorrupt) {
  for (const std::size_t length : {48u, 100000u})
    expect_end(
        Code::corrupt,
        [length](int socket) {
          const std::string garbage(length, 'x');
          EXPECT_GT(::send(socket, garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT), 0);
        },
        [](HostRank& self) {
          return self.start(Recv{g_buffer, 1, 0}, false);
        });
}

TEST(MessagesOverHostsFail, ADeadlineEndsARecvAndASend) {
  for (const bool async : {false, true})
    for (const bool is_send : {false, true}) {
      std::latch over(2);
      as_hosts({0, 1}, [&](HostRank& self) {
        if (self.rank() == 0) {
          const Op op = is_send ? Op(Send{g_buffer, 1, 0}) : Op(Recv{g_buffer, 1, 0});
          const Work work = self.start(op, async, std::chrono::milliseconds(50));
          while (!work.done()) std::this_thread::yield();
          ASSERT_NE(work.failure(), nullptr);
          EXPECT_EQ(work.failure()->code, Code::timed_out);
        }
        over.arrive_and_wait();
      });
    }
}

// The kernel would end a connection whose other end does not read for so long.
TEST(MessagesOverHostsFail, APeerMayReadAsLateAsItLikes) {
  as_hosts({0, 1}, [](HostRank& self) {
    unsigned milliseconds = 1;
    socklen_t length = sizeof milliseconds;
    const int socket = self.socket_to(1 - self.rank());
    EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, &length), 0);
    EXPECT_EQ(milliseconds, 0u);
  });
}

}}}  // namespace c10d::v0
