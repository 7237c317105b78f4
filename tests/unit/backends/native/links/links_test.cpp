// SPDX-License-Identifier: BSD-3-Clause
// Rank 0 over real sockets to ranks that may send anything.
#include "src/backends/native/links/links.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/net/socket.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 { namespace {

using native::Links;
using native::Stream;

constexpr std::size_t kBytes = Stream::kChunkBytes + 1000;  // two chunks
constexpr std::uint64_t kSequence = 7;

Deadline in_time() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

std::vector<std::byte> numbered(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

// A block, as it goes over the wire.
std::string chunks_of(std::size_t bytes, std::uint64_t sequence) {
  const std::vector<std::byte> block = numbered(bytes);
  Stream stream;
  stream.send(block.data(), bytes, sequence);
  std::string wire;
  for (auto pieces = stream.output(); !pieces.empty(); pieces = stream.output()) {
    wire.append(static_cast<const char*>(pieces[0].iov_base), pieces[0].iov_len);
    stream.wrote(pieces[0].iov_len);
  }
  return wire;
}

std::string with_flipped_bit(std::string wire, std::size_t byte) {
  wire[byte] = static_cast<char>(wire[byte] ^ 1);
  return wire;
}

std::pair<Fd, Fd> connected() {
  const Fd listener = listen_tcp(resolve("127.0.0.1", 0).front());
  std::string problem;
  Fd own = connect_tcp({local_address(listener.get())}, in_time(), problem);
  EXPECT_TRUE(own) << problem;
  EXPECT_TRUE(wait_for(listener.get(), POLLIN, in_time()));
  return {std::move(own),
          Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK))};
}

class LinksOfRank0 : public testing::Test {
 protected:
  static constexpr int kSize = 3;

  LinksOfRank0() {
    std::vector<std::vector<Mesh::Connection>> streams(1);
    for (int rank = 1; rank < kSize; ++rank) {
      auto [own, other] = connected();
      peers_.push_back(std::move(other));
      constexpr int kMuch = 1 << 20;
      ::setsockopt(peers_.back().get(), SOL_SOCKET, SO_SNDBUF, &kMuch, sizeof kMuch);
      streams[0].push_back({rank, Rails(RankSocket(std::move(own)))});
    }
    for (int rank = 0; rank < kSize; ++rank) context_.members.push_back({.rank = rank});
    links_ = std::make_unique<Links>(context_, std::move(streams));
  }

  int socket_of(int rank) const { return peers_[static_cast<std::size_t>(rank) - 1].get(); }
  // While rank 0 has not posted anything: the kernel has room for it.
  void say(int rank, const std::string& wire) {
    ASSERT_TRUE(send_all(socket_of(rank), wire, in_time()));
  }
  Links::End await() {
    return links_->await(wait_policy(1, 2), control_, in_time(), [&] { return links_->idle(); });
  }
  // Rank 1 sends its block, rank 2 something else than a block of so many bytes.
  void expect_loss(const std::string& wire, bool corrupt, const std::string& why,
                   std::size_t bytes = kBytes) {
    std::vector<std::byte> good(kBytes), bad(bytes);
    links_->receive(1, good.data(), kBytes, kSequence);
    links_->receive(2, bad.data(), bytes, kSequence);
    say(1, chunks_of(kBytes, kSequence));
    say(2, wire);
    ::shutdown(socket_of(2), SHUT_WR);
    EXPECT_EQ(await(), Links::End::lost);
    const Failure failure = links_->failure_of_loss(context_);
    EXPECT_EQ(failure.rank, 2);
    EXPECT_EQ(failure.code, corrupt ? Code::corrupt : Code::link_lost) << failure.message;
    EXPECT_NE(failure.message.find(why), std::string::npos) << failure.message;
    EXPECT_EQ(links_->received(2), 0u);
  }

  BackendContext context_{.rank = 0, .size = kSize};
  TestControl control_{0, kSize, std::make_shared<GroupFate>()};
  std::vector<Fd> peers_;
  std::unique_ptr<Links> links_;
};

TEST_F(LinksOfRank0, BlocksOfSeveralRanksArrive) {
  std::vector<std::vector<std::byte>> got(kSize, std::vector<std::byte>(kBytes));
  for (int rank = 1; rank < kSize; ++rank) {
    links_->receive(rank, got[static_cast<std::size_t>(rank)].data(), kBytes, kSequence);
    say(rank, chunks_of(kBytes, kSequence));
  }
  EXPECT_EQ(await(), Links::End::ready);
  for (int rank = 1; rank < kSize; ++rank)
    EXPECT_EQ(got[static_cast<std::size_t>(rank)], numbered(kBytes));
}

TEST_F(LinksOfRank0, AChunkOfAnotherOpIsCorrupt) {
  expect_loss(chunks_of(kBytes, kSequence + 1), true, "of #8 where");
}

TEST_F(LinksOfRank0, AChunkThatDoesNotFitItsBlockIsCorrupt) {
  expect_loss(chunks_of(100, kSequence), true, "it sent 100 bytes at 0 of #7 where 131072");
}

TEST_F(LinksOfRank0, AChunkBeyondItsBlockIsCorrupt) {
  const std::string longer = chunks_of(2 * Stream::kChunkBytes, kSequence);
  expect_loss(longer, true, "it sent 131072 bytes at 131072 of #7 where 1000 at 131072");
}

TEST_F(LinksOfRank0, AChunkTwiceIsCorrupt) {
  const std::string first =
      chunks_of(kBytes, kSequence).substr(0, Stream::kHeaderBytes + Stream::kChunkBytes);
  expect_loss(first + first, true, "131072 bytes at 0 of #7 where 131072 at 131072",
              2 * Stream::kChunkBytes);
}

TEST_F(LinksOfRank0, DataThatWasChangedIsCorrupt) {
  expect_loss(with_flipped_bit(chunks_of(kBytes, kSequence), Stream::kHeaderBytes + 5000), true,
              "131072 bytes came with a wrong checksum");
}

TEST_F(LinksOfRank0, AHeaderThatWasChangedIsCorrupt) {
  expect_loss(with_flipped_bit(chunks_of(kBytes, kSequence), 5), true, "it is no rank");
}

TEST_F(LinksOfRank0, GarbageIsCorrupt) {
  expect_loss(std::string(100, 'x'), true, "it is no rank");
}

TEST_F(LinksOfRank0, HalfAHeaderAndThenTheEndIsALostLink) {
  expect_loss(chunks_of(kBytes, kSequence).substr(0, 20), false, "its connection ended");
}

TEST_F(LinksOfRank0, HalfAChunkAndThenTheEndIsALostLink) {
  expect_loss(chunks_of(kBytes, kSequence).substr(0, 5000), false, "its connection ended");
}

// Where more comes than was awaited, the next op finds it.
TEST_F(LinksOfRank0, ABlockTooManyIsCorruptInTheNextOp) {
  std::vector<std::byte> got(kBytes);
  links_->receive(1, got.data(), kBytes, kSequence);
  say(1, chunks_of(kBytes, kSequence));
  say(1, chunks_of(kBytes, kSequence));
  EXPECT_EQ(await(), Links::End::ready);
  EXPECT_EQ(got, numbered(kBytes));
  links_->receive(1, got.data(), kBytes, kSequence + 1);
  EXPECT_EQ(await(), Links::End::lost);
  const Failure failure = links_->failure_of_loss(context_);
  EXPECT_EQ(failure.code, Code::corrupt);
  EXPECT_EQ(failure.rank, 1);
}

// Both ranks divide each block the same way, whatever its length is, and count it when all of it is
// through.
TEST(LinksOfSeveralStreams, BlocksOfEveryLengthArriveWhole) {
  constexpr std::size_t kChunk = Stream::kChunkBytes;
  const std::vector<std::size_t> lengths = {0,          1,   kChunk, kChunk + 1,     2 * kChunk,
                                            0,          100, 7,      3 * kChunk - 1, 9 * kChunk,
                                            kChunk / 2, 5,   kChunk};
  for (const std::size_t count : {1u, 2u, 3u, 16u}) {
    std::vector<std::vector<Mesh::Connection>> of_0(count), of_1(count);
    for (std::size_t i = 0; i < count; ++i) {
      auto [one, other] = connected();
      of_0[i].push_back({1, Rails(RankSocket(std::move(one)))});
      of_1[i].push_back({0, Rails(RankSocket(std::move(other)))});
    }
    Links sender({.rank = 0, .size = 2}, std::move(of_0));
    Links receiver({.rank = 1, .size = 2}, std::move(of_1));
    TestControl control(0, 2, std::make_shared<GroupFate>());
    const std::vector<std::byte> data = numbered(9 * kChunk);
    std::vector<std::vector<std::byte>> got;
    for (const std::size_t length : lengths) got.emplace_back(length);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      sender.send(1, data.data(), lengths[i], kSequence);
      receiver.receive(0, got[i].data(), lengths[i], kSequence);
    }
    EXPECT_EQ(sender.posted_sends(1), lengths.size());
    std::thread other([&] {
      EXPECT_EQ(sender.await(wait_policy(1, 2), control, in_time(), [&] { return sender.idle(); }),
                Links::End::ready);
    });
    std::size_t before = 0;
    const auto ready = [&] {
      const std::size_t through = receiver.received(0);
      EXPECT_GE(through, before);
      for (std::size_t i = before; i < through; ++i)
        EXPECT_EQ(got[i], numbered(lengths[i])) << i << " of " << count << " streams";
      before = through;
      return receiver.idle();
    };
    EXPECT_EQ(receiver.await(wait_policy(1, 2), control, in_time(), ready), Links::End::ready);
    other.join();
    EXPECT_EQ(before, lengths.size());
    EXPECT_EQ(sender.sent(1), lengths.size());
  }
}

}}}  // namespace c10d::v0
