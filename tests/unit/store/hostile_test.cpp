// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "src/net/bytes.h"
#include "src/net/handshake.h"
#include "src/net/socket.h"
#include "src/net/token.h"
#include "src/store/server_state.h"
#include "tests/unit/store/kinds.h"

namespace c10d::test { namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A server with an honest client at work; whatever a test does beside it, the client notices
// nothing.
class HostileStore : public testing::Test {
 protected:
  void SetUp() override { expect_progress(); }
  void TearDown() override {
    expect_progress();
    done_ = true;
    honest_.join();
    EXPECT_LT(slowest_.load(), std::chrono::nanoseconds(10s).count());
  }

  // The honest client's own deadline ends this when the server is stuck.
  void expect_progress() const {
    const int before = calls_;
    while (calls_ < before + 2) std::this_thread::yield();
  }

  Fd connect() {
    std::string problem;
    Fd fd = connect_tcp(resolve("127.0.0.1", server_->port()), steady_clock::now() + 30s, problem);
    EXPECT_TRUE(fd) << problem;
    return fd;
  }

  // A connection that has proved to belong to the job.
  Fd join(const std::string& id = random_bytes(kClientIdBytes)) {
    Fd fd = connect();
    ClientHandshake handshake(options_, id, false);
    EXPECT_EQ(run_handshake(fd.get(), handshake, steady_clock::now() + 30s), Step::done);
    return fd;
  }

  static void send(const Fd& fd, std::string_view bytes) {
    send_all(fd.get(), bytes, steady_clock::now() + 30s);
  }

  // All that comes until the server closes; fails when it does not within `patience`.
  static std::string read_to_end(const Fd& fd, Duration patience = 30s) {
    std::string all;
    const Deadline deadline = steady_clock::now() + patience;
    char buffer[65536];
    for (;;) {
      if (!wait_for(fd.get(), POLLIN, deadline)) {
        ADD_FAILURE() << "the server did not close the connection";
        return all;
      }
      const ssize_t count = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (count <= 0) return all;
      all.append(buffer, static_cast<std::size_t>(count));
    }
  }

  // The reason that the server gave before it closed.
  static Failure refusal_on(const Fd& fd) {
    const std::string bytes = read_to_end(fd);
    Failure refusal;
    FrameParser parser(1 << 20);
    parser.feed(bytes, [&](const Frame& frame) {
      if (frame.header.type == refusal_frame) refusal = refusal_of(frame);
      return true;
    });
    EXPECT_FALSE(refusal.message.empty());
    return refusal;
  }

  static std::string call_frame(StoreOp op, std::uint64_t id, const Request& request) {
    std::string frame;
    const std::size_t start = begin_frame(frame, static_cast<std::uint8_t>(op), id);
    encode(1s, request, frame);
    end_frame(frame, start);
    return frame;
  }

  const HandshakeOptions options_{.job = "job", .role = "store", .token = kToken};
  std::shared_ptr<TcpStore> server_ = tcp_server({.output_queue_bytes = 1 << 20});
  std::atomic<bool> done_ = false;
  std::atomic<int> calls_ = 0;
  std::atomic<std::int64_t> slowest_ = 0;
  std::thread honest_{[this] {
    const auto client = make_tcp_store(client_of(*server_));
    while (!done_) {
      const auto start = steady_clock::now();
      EXPECT_EQ(client->add("honest", 1), ++calls_);
      const auto took = std::chrono::nanoseconds(steady_clock::now() - start).count();
      slowest_ = std::max(slowest_.load(), static_cast<std::int64_t>(took));
    }
  }};
};

TEST_F(HostileStore, GarbageIsRefused) {
  for (const std::string& garbage :
       {std::string(64, '\xff'), std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(60, 'x')}) {
    const Fd fd = connect();
    send(fd, garbage);
    EXPECT_EQ(refusal_on(fd).code, Code::corrupt);
  }
}

TEST_F(HostileStore, AnotherVersionIsNamed) {
  for (const char version : {1, 99}) {
    ClientHandshake handshake(options_, random_bytes(kClientIdBytes), false);
    std::string hello = handshake.hello();
    hello[4] = version;
    const Fd fd = connect();
    send(fd, hello);
    const Failure refusal = refusal_on(fd);
    EXPECT_EQ(refusal.code, Code::version_mismatch);
    EXPECT_NE(refusal.message.find(" " + std::to_string(version) + " "), std::string::npos)
        << refusal.message;
  }
}

TEST_F(HostileStore, AWrongProofIsRefused) {
  const Fd fd = connect();
  ClientHandshake handshake(options_, random_bytes(kClientIdBytes), false);
  std::string bytes = handshake.hello();
  append_frame(bytes, proof_frame, 0, std::string(kDigestBytes, 'x'));
  send(fd, bytes);
  EXPECT_EQ(refusal_on(fd).code, Code::not_authenticated);
}

TEST_F(HostileStore, TheServersOwnProofDoesNotServeAsOurs) {
  const Fd fd = connect();
  ClientHandshake handshake(options_, random_bytes(kClientIdBytes), false);
  send(fd, handshake.hello());
  ASSERT_TRUE(wait_for(fd.get(), POLLIN, steady_clock::now() + 30s));
  char buffer[512];
  const ssize_t count = ::recv(fd.get(), buffer, sizeof buffer, 0);
  ASSERT_EQ(count, static_cast<ssize_t>(kFrameHeaderBytes + kNonceBytes + kDigestBytes));
  std::string reflected;
  append_frame(reflected, proof_frame, 0, {buffer + kFrameHeaderBytes + kNonceBytes, kDigestBytes});
  send(fd, reflected);
  EXPECT_EQ(refusal_on(fd).code, Code::not_authenticated);
}

TEST_F(HostileStore, ACallBeforeTheProofIsRefused) {
  const Fd fd = connect();
  send(fd, call_frame(StoreOp::set, 1, {.op = StoreOp::set, .keys = {"k"}, .values = {"v"}}));
  EXPECT_EQ(refusal_on(fd).code, Code::corrupt);
  EXPECT_EQ(server_->try_get("k"), std::nullopt);
}

TEST_F(HostileStore, AHalfSentFrameOfAStrangerIsClosedInTwoSeconds) {
  ClientHandshake handshake(options_, random_bytes(kClientIdBytes), false);
  const auto start = steady_clock::now();
  const Fd fd = connect();
  send(fd, std::string_view(handshake.hello()).substr(0, 30));
  EXPECT_EQ(read_to_end(fd), "");
  EXPECT_GT(steady_clock::now() - start, 1s);
}

TEST_F(HostileStore, AHalfSentFrameOfAMemberDelaysNobody) {
  const Fd fd = join();
  const std::string frame =
      call_frame(StoreOp::set, 1, {.op = StoreOp::set, .keys = {"half"}, .values = {"value"}});
  send(fd, std::string_view(frame).substr(0, frame.size() - 1));
  for (int i = 0; i < 100; ++i) server_->set("k", "v");
  EXPECT_EQ(server_->try_get("half"), std::nullopt);
  send(fd, std::string_view(frame).substr(frame.size() - 1));
  EXPECT_EQ(server_->get("half"), "value");
}

TEST_F(HostileStore, AnAbsurdLengthTakesNoMemory) {
  for (const bool member : {false, true}) {
    const Fd fd = member ? join() : connect();
    std::string frame;
    put(frame, kFrameMagic);
    put(frame, kFrameVersion);
    put(frame, std::uint16_t{1});
    put(frame, std::uint64_t{1});
    put(frame, std::uint64_t{1} << 62);
    send(fd, frame);
    EXPECT_EQ(refusal_on(fd).code, Code::corrupt);
  }
}

TEST_F(HostileStore, CountsThatCannotBeTrueAreRefused) {
  const Fd fd = join();
  std::string frame;
  const std::size_t start = begin_frame(frame, static_cast<std::uint8_t>(StoreOp::wait), 1);
  put(frame, std::uint64_t{0});
  put(frame, std::uint64_t{0});
  put(frame, std::uint32_t{0xffffffff});
  put(frame, std::uint32_t{0xffffffff});
  end_frame(frame, start);
  send(fd, frame);
  EXPECT_EQ(refusal_on(fd).code, Code::corrupt);
}

TEST_F(HostileStore, AMemberThatSendsTwoCallsInOneLaneIsDropped) {
  const Fd fd = join();
  const Request wait{.op = StoreOp::wait, .keys = {"never"}};
  send(fd, call_frame(StoreOp::wait, 1, wait) + call_frame(StoreOp::wait, 1, wait));
  EXPECT_EQ(refusal_on(fd).code, Code::corrupt);
}

TEST_F(HostileStore, AThousandSilentConnectionsHurtNobody) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<Fd> silent;
  for (int i = 0; i < 1000; ++i) silent.push_back(connect());
  // A newcomer gets in beside them, and all of them are gone soon.
  make_tcp_store(client_of(*server_))->set("k", "v");
  for (const Fd& fd : silent) EXPECT_EQ(read_to_end(fd), "");
}

TEST_F(HostileStore, ASlowReaderIsDroppedAndToldWhy) {
  server_->set("big", std::string(512 * 1024, 'x'));
  const std::string id = random_bytes(kClientIdBytes);
  const Fd fd = join(id);
  const int small = 4096;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  // One answer fills the queue; the others are put off, which a client of ours would read. Nothing
  // is read: the server has given up when it takes no more.
  const Deadline deadline = steady_clock::now() + 60s;
  std::string calls;
  std::uint64_t number = 0;
  do {
    calls.clear();
    for (int i = 0; i < 1000; ++i)
      calls += call_frame(StoreOp::get, ++number, {.op = StoreOp::get, .keys = {"big"}});
  } while (send_all(fd.get(), calls, deadline));
  ASSERT_LT(steady_clock::now(), deadline) << number << " calls";
  const Fd again = connect();
  ClientHandshake handshake(options_, id, true);
  ASSERT_EQ(run_handshake(again.get(), handshake, deadline), Step::refused);
  EXPECT_EQ(handshake.failure()->code, Code::store_limit);
  EXPECT_NE(handshake.failure()->message.find("output_queue_bytes"), std::string::npos)
      << handshake.failure()->message;
}

}}  // namespace c10d::test
