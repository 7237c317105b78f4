// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backends/native/layout.h"
#include "src/backends/native/team.h"

namespace c10d::inline v0::native {

enum class FrameKind : std::uint32_t {
  none,   // nothing here yet
  whole,  // a message with all its data
  offer,  // a message too long for that: the data is where it lies, until it is answered
  piece   // some data of a message whose offer was answered with Answer::stream
};

// What precedes data in a ring. Frames start at cache lines: a short message is one line, and the
// frame itself is the flag that says that it is there.
struct Frame {
  FrameKind kind;  // with the tag, the word that is stored last
  std::uint32_t tag;
  std::uint32_t id;  // of an offer, among this sender's to this receiver
  std::uint32_t dtype;
  std::uint64_t total;   // bytes of the message
  std::uint64_t length;  // bytes of data in this frame
};
static_assert(sizeof(Frame) == 32);

// How a receiver answers an offer, once it has a recv for it.
struct Answer {
  std::uint32_t id = 0;
  bool stream = false;  // true: send it in pieces; false: it has been read where it lies
};

// The sending side of the ring from this rank to a peer.
class Sender {
 public:
  Sender(Team& team, int peer);
  // The longest message that goes as one frame.
  std::size_t whole_limit() const noexcept;
  // Whether there is room for a frame with so much data now.
  bool has_room(std::size_t bytes) noexcept;
  // Puts a frame for which there is room, and rings the peer.
  void put(const Frame& frame, const void* data) noexcept;
  // Takes the next answer, if there is one.
  bool take_answer(Answer& answer) noexcept;

 private:
  std::uint64_t& flag(std::uint64_t at) const noexcept;

  ChannelLines& lines_;
  std::byte* const ring_;
  const std::size_t size_;
  Bell& bell_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;  // as the receiver said last
  std::uint64_t answers_taken_ = 0;
};

// The receiving side of the ring from a peer to this rank.
class Receiver {
 public:
  Receiver(Team& team, int peer);
  // The frame at the front, if there is one.
  bool peek(Frame& frame) const noexcept;
  // Its data, then the frame is gone.
  void take(const Frame& frame, void* to) noexcept;
  // At most kOffers are open at a time, so there is always room.
  void answer(Answer answer) noexcept;

 private:
  ChannelLines& lines_;
  std::byte* const ring_;
  const std::size_t size_;
  Bell& bell_;
  std::uint64_t tail_ = 0;
  std::uint64_t told_ = 0;  // of it, what the sender knows
  std::uint64_t answers_ = 0;
};

}  // namespace c10d::inline v0::native
