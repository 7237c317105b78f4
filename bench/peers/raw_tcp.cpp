// SPDX-License-Identifier: BSD-3-Clause
// What two ranks need at least to add up their floats over TCP: a connection and a loop. It has no
// checks, no checksums and no thread.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/meeting/connection.h"
#include "bench/peers/raw_peer.h"
#include "src/net/network.h"
#include "src/net/socket.h"

namespace c10d::bench { namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWhole = std::size_t{32} << 10;  // bytes from which each adds up one half
constexpr std::size_t kPart = std::size_t{64} << 10;   // that is read, and added up, at once
constexpr std::chrono::milliseconds kAwake{1};         // before a rank sleeps

// A half of the floats: this rank adds up one, and gets the other from its peer.
struct Half {
  std::size_t first = 0, count = 0;
};

// One all_reduce. What goes out is the peer's half of the input, then the sums of this rank's own;
// what comes in is the same from the peer. Without halves each adds up all.
class Exchange {
 public:
  Exchange(int fd, int rank, const AllReduce& op)
      : fd_(fd),
        input_(static_cast<const float*>(op.input.data)),
        output_(static_cast<float*>(op.output.data)) {
    const std::size_t count = op.input.count;
    const Half low{0, count / 2}, high{count / 2, count - count / 2};
    halves_ = op.input.bytes() >= kWhole;
    ours_ = !halves_ ? Half{0, count} : rank == 0 ? low : high;
    theirs_ = !halves_ ? Half{0, count} : rank == 0 ? high : low;
    to_send_ = bytes(theirs_) + (halves_ ? bytes(ours_) : 0);
    to_receive_ = bytes(ours_) + (halves_ ? bytes(theirs_) : 0);
  }

  // Throws std::runtime_error when the peer is gone, or does not come before the deadline.
  void run(Deadline deadline) {
    Deadline sleeps_at = Clock::now() + kAwake;
    while (sent_ < to_send_ || received_ < to_receive_) {
      const bool sent = send_some();
      const bool received = receive_some();
      if (sent || received) {
        sleeps_at = Clock::now() + kAwake;
      } else if (Clock::now() > sleeps_at) {
        const int events = (can_receive() ? POLLIN : 0) | (sent_ < sendable() ? POLLOUT : 0);
        if (!wait_for(fd_, static_cast<short>(events), deadline))
          throw std::runtime_error("the other rank is late");
      }
    }
  }

 private:
  static std::size_t bytes(Half half) { return half.count * sizeof(float); }

  // Their half of the input, and what has been added up of this one.
  std::size_t sendable() const {
    return std::min(to_send_, bytes(theirs_) + summed_ * sizeof(float));
  }

  // In place a sum takes the place of an input, which must have been sent if it is the whole.
  bool can_receive() const {
    return received_ < to_receive_ && (halves_ || input_ != output_ || sent_ == to_send_);
  }

  bool send_some() {
    const std::size_t end = sendable();
    if (sent_ == end) return false;
    const std::size_t of_input = bytes(theirs_);
    const bool is_input = sent_ < of_input;
    const char* const from =
        is_input ? reinterpret_cast<const char*>(input_ + theirs_.first) + sent_
                 : reinterpret_cast<const char*>(output_ + ours_.first) + (sent_ - of_input);
    const std::size_t most = (is_input ? std::min(of_input, end) : end) - sent_;
    const ssize_t sent = ::send(fd_, from, most, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) sent_ += static_cast<std::size_t>(sent);
    return check(sent, sent < 0);
  }

  bool receive_some() {
    if (!can_receive()) return false;
    const std::size_t to_sum = bytes(ours_);
    if (received_ < to_sum) {
      const std::size_t held = received_ % sizeof(float);  // of a float that is not whole yet
      char* const parts = reinterpret_cast<char*>(part_.data());
      const std::size_t most = std::min(kPart - held, to_sum - received_);
      const ssize_t got = ::recv(fd_, parts + held, most, MSG_DONTWAIT);
      if (got > 0) add_up(held + static_cast<std::size_t>(got));
      return check(got, got <= 0);
    }
    char* const to = reinterpret_cast<char*>(output_ + theirs_.first) + (received_ - to_sum);
    const ssize_t got = ::recv(fd_, to, to_receive_ - received_, MSG_DONTWAIT);
    if (got > 0) received_ += static_cast<std::size_t>(got);
    return check(got, got <= 0);
  }

  // What is in the part, with the input.
  void add_up(std::size_t held) {
    const std::size_t count = held / sizeof(float);
    const float* const in = input_ + ours_.first + summed_;
    float* const out = output_ + ours_.first + summed_;
    for (std::size_t i = 0; i < count; ++i) out[i] = in[i] + part_[i];
    summed_ += count;
    const std::size_t left = held % sizeof(float);
    std::memmove(part_.data(), reinterpret_cast<const char*>(part_.data()) + held - left, left);
    received_ = summed_ * sizeof(float) + left;
  }

  static bool check(ssize_t moved, bool failed) {
    if (!failed) return true;
    if (moved == 0) throw std::runtime_error("the other rank is gone");
    if (errno == EAGAIN || errno == EINTR) return false;
    throw std::runtime_error(error_text(errno));
  }

  int fd_;
  const float* input_;
  float* output_;
  bool halves_ = false;
  Half ours_, theirs_;
  std::size_t to_send_ = 0, sent_ = 0, to_receive_ = 0, received_ = 0;
  std::size_t summed_ = 0;  // floats of ours
  std::array<float, kPart / sizeof(float)> part_;
};

Support supports_query(const Query& query) {
  if (query.op != OpKind::all_reduce || query.dtype != DType::f32 ||
      query.reduce_op != ReduceOp::sum || query.device != DeviceType::cpu)
    return no("the loop around a connection has all_reduce of f32 sums only");
  return {};
}

// At which rank 0 listens.
std::string meeting_address(const BackendContext& context) {
  if (context.rank != 0) return context.store->get("address");
  const std::string address =
      context.all_local() ? "127.0.0.1" : address_for_others(std::array{context.members[1].host});
  context.store->set("address", address);
  return address;
}

class RawTcp : public RawPeer {
 public:
  explicit RawTcp(BackendContext context) : RawPeer(std::move(context), "TCP") {
    if (context_.size != 2)
      throw_failure({.code = Code::unsupported,
                     .message = "raw:tcp is one connection between two ranks, and there are " +
                                std::to_string(context_.size)});
    connections_ =
        connect_hosts(context_.rank == 0 ? End::listens : End::connects, *context_.store, "tcp",
                      meeting_address(context_), 1, Clock::now() + context_.timeout);
    leave_unwatched(connections_.front().fd());  // between ops nobody reads
  }

  Support supports(const Query& query) const override { return supports_query(query); }
  Work launch(const Call& call) override {
    try {
      Exchange(connections_.front().fd(), context_.rank, std::get<AllReduce>(call.op))
          .run(call.deadline);
      return {};
    } catch (const std::exception& error) {
      return failed(error.what());
    }
  }

 private:
  std::vector<Connection> connections_;
};

}}  // namespace c10d::bench

extern "C" __attribute__((visibility("default"))) const c10d::BackendModule* c10d_backend_module() {
  static constexpr c10d::BackendModule module{
      .name = "raw:tcp",
      .version = [] { return "the kernel's"; },
      .supports = c10d::bench::supports_query,
      .create = [](c10d::BackendContext context) -> std::unique_ptr<c10d::Backend> {
        return std::make_unique<c10d::bench::RawTcp>(std::move(context));
      }};
  return &module;
}
