// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "c10d/error.h"
#include "src/net/frame.h"
#include "src/net/handshake.h"

namespace c10d { inline namespace v0 {

// One connection between two ranks of a group: first the handshake, by which each end proves that
// it knows the job's token, then frames. A state machine without a socket: it takes bytes and gives
// bytes. For one thread at a time.
class Link {
 public:
  static constexpr std::size_t kMaxBody = std::size_t{64} << 10;   // bytes of a frame
  static constexpr std::size_t kMaxOutput = std::size_t{1} << 20;  // bytes that wait
  enum class State { shaking, open, closed };
  using Sink = std::function<void(const Frame&)>;
  // Whether the called end takes this rank; else why not.
  using Admit = std::function<std::optional<Failure>(int rank)>;

  // The end that calls, as `rank`.
  Link(HandshakeOptions options, int rank);
  // The called end.
  Link(HandshakeOptions options, Admit admit);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Takes what has arrived, and calls `sink` for each frame after the handshake; its body is
  // borrowed until then. Garbage closes the link.
  void receive(std::string_view bytes, const Sink& sink);
  // Once open. Closes the link when more than kMaxOutput bytes would wait: its other end does not
  // read.
  void send(std::uint8_t type, std::string_view body);
  // What is to be sent, and that so much of it was. Of a closed link too: its refusal.
  std::string_view output() const noexcept { return output_; }
  void sent(std::size_t bytes) { output_.erase(0, bytes); }

  State state() const noexcept { return state_; }
  // Why it is closed.
  const std::optional<Failure>& failure() const noexcept { return failure_; }
  // The rank at the other end, once a called link is open.
  int caller() const noexcept { return caller_; }

 private:
  void close(Failure failure);
  bool shake(const Frame& frame);
  void finish_call();

  const HandshakeOptions options_;
  Admit admit_;
  std::optional<ClientHandshake> calling_;
  std::optional<ServerHandshake> called_;
  FrameParser parser_{kMaxStrangerFrame};
  std::string output_;
  State state_ = State::shaking;
  std::optional<Failure> failure_;
  int caller_ = -1;
};

}}  // namespace c10d::v0
