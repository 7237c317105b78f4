// SPDX-License-Identifier: BSD-3-Clause
// Two ranks whose network is cut, over connections of the kernel: its counters decide what must be
// sent again.
#include "src/net/mesh/rails.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/net/address.h"
#include "src/net/socket.h"

namespace c10d { namespace {

using std::chrono::steady_clock;

struct Pair {
  RankSocket first, second;
};

Pair connected() {
  const Fd listener = listen_tcp(resolve("127.0.0.1", 0).front());
  std::string problem;
  Fd calling = connect_tcp({local_address(listener.get())},
                           steady_clock::now() + std::chrono::seconds(10), problem);
  Fd called(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  tune_tcp(called.get());
  return {RankSocket(std::move(calling)), RankSocket(std::move(called))};
}

// From now on nothing that is sent to this end arrives, and its kernel acknowledges nothing.
void cut_off(int fd) {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &nothing};
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
}

void mend(int fd) {
  constexpr int kNone = 0;
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &kNone, sizeof kNone), 0);
}

int unacknowledged(int fd) {
  int bytes = 0;
  EXPECT_EQ(::ioctl(fd, SIOCOUTQ, &bytes), 0);
  return bytes;
}

std::byte byte_at(std::uint64_t position, std::size_t way) {
  return static_cast<std::byte>((position * 2654435761u + way * 97) >> 13);
}

// One end: what it has sent and received so far is known by position alone.
class End {
 public:
  End(RankSocket first, std::size_t way) : rails_(std::move(first), true), way_(way) {}
  Rails& rails() { return rails_; }
  std::uint64_t sent = 0, received = 0;
  std::string problem;

  void write(std::size_t bytes) {
    buffer_.resize(bytes);
    for (std::size_t i = 0; i < bytes; ++i) buffer_[i] = byte_at(sent + i, way_);
    const std::size_t half = bytes / 2;
    const std::array pieces{iovec{buffer_.data(), half},
                            iovec{buffer_.data() + half, bytes - half}};
    const ssize_t count = rails_.send(pieces);
    if (count > 0) sent += static_cast<std::size_t>(count);
    note(count);
  }
  void read(std::size_t bytes) {
    buffer_.resize(bytes);
    const iovec piece{buffer_.data(), bytes};
    const ssize_t count = rails_.receive({&piece, 1});
    for (ssize_t i = 0; i < count; ++i, ++received)
      if (buffer_[static_cast<std::size_t>(i)] != byte_at(received, 1 - way_) && problem.empty())
        problem = "a wrong byte at " + std::to_string(received);
    if (count == 0) problem = "it ended";
    note(count);
  }

 private:
  void note(ssize_t count) {
    if (count < 0 && errno != EAGAIN && problem.empty()) problem = error_text(errno);
  }

  Rails rails_;
  const std::size_t way_;
  std::vector<std::byte> buffer_;
};

class World {
 public:
  World(unsigned seed, std::size_t networks) : random_(seed) {
    Pair first = connected();
    ends_.emplace_back(std::move(first.first), 0);
    ends_.emplace_back(std::move(first.second), 1);
    if (pick(2) == 0) ends_[0].write(pick(3000));  // before the other networks are there
    settle();
    for (std::size_t network = 1; network < networks; ++network) {
      Pair next = connected();
      ends_[0].rails().add(std::move(next.first));
      ends_[1].rails().add(std::move(next.second));
    }
  }

  End& end(std::size_t number) { return ends_[number]; }
  std::size_t pick(std::size_t choices) { return random_() % choices; }

  // Some reads and writes of both.
  void step() {
    for (End& end : ends_) {
      if (pick(2) == 0 && end.sent < kBytes)
        end.write(1 + pick(std::min<std::size_t>(kBytes - end.sent, 50'000)));
      if (pick(3) != 0) end.read(1 + pick(70'000));
      if (pick(4) == 0) end.rails().acknowledged();
    }
  }
  // One end, or both, hear nothing on the network that is used; one of them notices it.
  void cut() {
    const std::size_t which = pick(3);
    if (which != 1) cut_off(ends_[0].rails().fd());
    if (which != 0) cut_off(ends_[1].rails().fd());
    const std::size_t later = pick(20);
    for (std::size_t i = 0; i < later; ++i) step();
    const std::size_t notices = pick(3);
    for (const std::size_t number : {0U, 1U})
      if (notices != number) ::shutdown(ends_[number].rails().fd(), SHUT_RDWR);
  }
  // Until both have all, and know that.
  void settle() {
    const Deadline end = steady_clock::now() + std::chrono::seconds(20);
    while (steady_clock::now() < end && problem().empty()) {
      for (const std::size_t number : {0U, 1U}) ends_[number].read(65536);
      if (ends_[0].received == ends_[1].sent && ends_[1].received == ends_[0].sent &&
          ends_[0].rails().is_acknowledged() && ends_[1].rails().is_acknowledged())
        return;
    }
    if (problem().empty()) ends_[0].problem = "not all came";
  }
  std::string problem() const {
    return ends_[0].problem.empty() ? ends_[1].problem : ends_[0].problem;
  }

 private:
  static constexpr std::size_t kBytes = 1'500'000;

  std::mt19937 random_;
  std::vector<End> ends_;
};

TEST(Rails, LoseNothingWhenANetworkIsCut) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const std::size_t networks = 2 + seed % 2;
    World world(seed, networks);
    for (std::size_t cut = 1; cut < networks; ++cut) {
      const std::size_t before = world.pick(40);
      for (std::size_t i = 0; i < before; ++i) world.step();
      world.cut();
    }
    for (int i = 0; i < 40; ++i) world.step();
    world.settle();
    ASSERT_EQ(world.problem(), "") << "seed " << seed;
  }
}

// The kernel of the end that has left it still takes what comes, and acknowledges it.
TEST(Rails, ReadWhatCameOverANetworkAfterItWasLeft) {
  World world(2, 2);
  End &leaves = world.end(0), &stays = world.end(1);
  const int left = leaves.rails().fd(), other = stays.rails().fd();
  for (const int fd : {left, other}) {
    leave_unwatched(fd);
    cut_off(fd);
  }
  leaves.write(1000);
  stays.write(40'000);
  const Deadline end = steady_clock::now() + std::chrono::seconds(60);
  while (leaves.rails().fd() == left && steady_clock::now() < end) {
    ASSERT_TRUE(leaves.rails().look(steady_clock::now()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  mend(left);
  mend(other);
  while (unacknowledged(other) != 0 && steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_EQ(unacknowledged(other), 0);
  world.settle();
  EXPECT_EQ(world.problem(), "");
  EXPECT_NE(stays.rails().fd(), other);
}

TEST(Rails, TellTheEndOfTheLastNetworkOnly) {
  World world(1, 2);
  world.step();
  world.settle();
  ASSERT_EQ(world.problem(), "");
  world.cut();
  world.settle();
  ASSERT_EQ(world.problem(), "");
  ::shutdown(world.end(0).rails().fd(), SHUT_RDWR);
  world.settle();
  EXPECT_EQ(world.problem(), "it ended");
}

TEST(Rails, GiveTheLastWordsOfARankThatEnded) {
  Pair first = connected(), second = connected();
  End stays(std::move(first.second), 1);
  stays.rails().add(std::move(second.second));
  {
    End ends(std::move(first.first), 0);
    ends.rails().add(std::move(second.first));
    ends.write(1000);
  }
  while (stays.problem.empty()) stays.read(100);
  EXPECT_EQ(stays.received, 1000U);
}

TEST(Rails, TakeNoHandoverThatDoesNotFit) {
  Pair first = connected(), second = connected();
  End end(std::move(first.first), 0);
  const int stranger = second.second.get();
  end.rails().add(std::move(second.first));
  const std::string garbage(32, 'x');
  ASSERT_EQ(::send(stranger, garbage.data(), garbage.size(), 0), std::ssize(garbage));
  for (int i = 0; i < 1000; ++i) end.read(10);
  EXPECT_EQ(end.problem, "");  // of the network that is used
  End other(std::move(first.second), 1);
  other.write(5);
  while (end.received != 5 && end.problem.empty()) end.read(5);
  ::shutdown(end.rails().fd(), SHUT_RDWR);
  end.read(10);
  EXPECT_EQ(end.problem, "it ended");
}

// The connections of one end to another one that the test plays.
TEST(Rails, AStrangeHandoverEndsNoOtherNetwork) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 3; ++i) pairs.push_back(connected());
  End end(std::move(pairs[0].first), 0), other(std::move(pairs[0].second), 1);
  end.rails().add(std::move(pairs[1].first));
  other.rails().add(std::move(pairs[1].second));
  end.rails().add(std::move(pairs[2].first));
  const std::string garbage(32, 'x');
  ASSERT_EQ(::send(pairs[2].second.get(), garbage.data(), garbage.size(), 0), 32);
  other.rails().add(std::move(pairs[2].second));
  end.rails().answer();
  ::shutdown(end.rails().fd(), SHUT_RDWR);
  for (int i = 0; i < 100'000 && (end.received != 1000 || other.received != 1000); ++i)
    for (End* const one : {&end, &other}) {
      if (one->sent != 1000) one->write(1000 - one->sent);
      one->read(500);
    }
  EXPECT_EQ(end.received, 1000U);
  EXPECT_EQ(other.received, 1000U);
  EXPECT_EQ(end.problem + other.problem, "");
}

// Nobody reads for it.
TEST(Rails, AnEndThatOnlySendsLearnsThatTheLastNetworkEnded) {
  Pair first = connected(), second = connected();
  End end(std::move(first.first), 0);
  end.rails().add(std::move(second.first));
  { const RankSocket closed = std::move(first.second), also = std::move(second.second); }
  for (int i = 0; i < 1000 && end.problem.empty(); ++i) end.write(1000);
  EXPECT_NE(end.problem, "");
}

}}  // namespace c10d
