// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/crc32c.h"

namespace c10d { inline namespace v0 { namespace native { namespace {

std::array<Fd, 2> pair_of_sockets() {
  std::array<int, 2> fds{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

Transfer send_of(std::vector<std::byte>& data) {
  Transfer send;
  send.is_send = true;
  send.tag = 7;
  send.data = data.data();
  send.bytes = data.size();
  return send;
}

// What a wire sends for messages.
class Sending {
 public:
  std::string frame_of(std::vector<std::byte> data) {
    Transfer send = send_of(data);
    wire_.post(send);
    std::string bytes(std::size_t{64} << 10, '\0');
    const ssize_t count = ::recv(far_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return bytes;
  }

 private:
  std::array<Fd, 2> fds_ = pair_of_sockets();
  Wire wire_{Rails(RankSocket(std::move(fds_[0])))};
  Fd far_ = std::move(fds_[1]);
};

// The first frame of a connection.
std::string frame_of(std::vector<std::byte> data) { return Sending().frame_of(std::move(data)); }

// One end of a wire, whose other end is the test.
class Receiving {
 public:
  Receiving() : Receiving(pair_of_sockets()) {}
  void take(const std::string& bytes) {
    EXPECT_EQ(::send(far_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    while (wire.read([&](const Frame& frame, const std::byte* data) {
      messages.emplace_back(reinterpret_cast<const char*>(data), frame.length);
    })) {
    }
  }
  Wire wire;
  std::vector<std::string> messages;

 private:
  explicit Receiving(std::array<Fd, 2> fds)
      : wire(Rails(RankSocket(std::move(fds[0])))), far_(std::move(fds[1])) {}
  Fd far_;
};

TEST(Wire, TakesAMessageInWhateverParts) {
  Sending sending;
  const std::string frame = sending.frame_of(std::vector<std::byte>(1000, std::byte{5}));
  const std::string next = sending.frame_of(std::vector<std::byte>(1000, std::byte{5}));
  for (const std::size_t first : {1u, 47u, 48u, 49u, 500u}) {
    Receiving receiving;
    receiving.take(frame.substr(0, first));
    EXPECT_TRUE(receiving.messages.empty());
    receiving.take(frame.substr(first) + next);
    EXPECT_EQ(receiving.messages, std::vector<std::string>(2, std::string(1000, '\5')));
    EXPECT_EQ(receiving.wire.state(), Wire::State::alive);
  }
}

TEST(Wire, FindsAFrameThatComesTwiceOrIsMissing) {
  Sending sending;
  std::vector<std::string> frames;
  for (int i = 0; i < 3; ++i) frames.push_back(sending.frame_of(std::vector<std::byte>(8)));
  for (const auto& come : {std::pair{0, 0}, std::pair{0, 2}}) {
    Receiving receiving;
    receiving.take(frames[static_cast<std::size_t>(come.first)]);
    receiving.take(frames[static_cast<std::size_t>(come.second)]);
    EXPECT_EQ(receiving.wire.state(), Wire::State::corrupt);
    EXPECT_EQ(receiving.messages.size(), 1u);
  }
}

TEST(Wire, FindsEachBitThatIsWrong) {
  const std::string frame = frame_of(std::vector<std::byte>(8, std::byte{5}));
  for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
    std::string wrong = frame;
    wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ 1 << bit % 8);
    Receiving receiving;
    receiving.take(wrong);
    EXPECT_EQ(receiving.wire.state(), Wire::State::corrupt) << bit;
    EXPECT_TRUE(receiving.messages.empty()) << bit;
  }
}

// A peer that keeps to no limit must not use memory.
TEST(Wire, EndsWhereMoreComesThanItMayHold) {
  constexpr std::size_t kMost = Wire::kCredit / Wire::kMessageCost;
  const auto numbered = [frame = frame_of({})](std::uint32_t number) {
    constexpr std::size_t kSummed = 44;  // bytes of the header
    const std::uint32_t sum = crc32c(number, frame.data(), kSummed);
    std::string bytes = frame;
    std::memcpy(bytes.data() + kSummed, &sum, sizeof sum);
    return bytes;
  };
  Receiving receiving;
  for (std::uint32_t i = 0; i < kMost; ++i) receiving.take(numbered(i));
  EXPECT_EQ(receiving.messages.size(), kMost);
  EXPECT_EQ(receiving.wire.state(), Wire::State::alive);
  receiving.take(numbered(kMost));
  EXPECT_EQ(receiving.messages.size(), kMost);
  EXPECT_EQ(receiving.wire.state(), Wire::State::corrupt);
}

TEST(Wire, EndsWithItsConnection) {
  Receiving receiving;
  ::shutdown(receiving.wire.rails().fd(), SHUT_RD);
  receiving.wire.read([](const Frame&, const std::byte*) {});
  EXPECT_EQ(receiving.wire.state(), Wire::State::lost);
  EXPECT_FALSE(receiving.wire.why().empty());
  std::vector<std::byte> data(8);
  Transfer send = send_of(data);
  receiving.wire.post(send);
  EXPECT_FALSE(send.done);
}

}}}}  // namespace c10d::v0::native
