// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/backends/native/memory/layout.h"
#include "src/backends/native/team/team.h"

namespace c10d { inline namespace v0 { namespace native {

enum class FrameKind : std::uint32_t {
  none,   // nothing here yet
  whole,  // a message with all its data
  offer,  // a message too long for that: the address of its data, which stays until the answer
  piece   // some data of a message whose offer was answered with Answer::stream
};

// Precedes data in a ring. Frames start at cache lines. A short message is one line, and its frame
// is also the flag that says that it has arrived.
struct Frame {
  FrameKind kind;  // with the tag, the word that is stored last
  std::uint32_t tag;
  std::uint32_t id;  // of an offer, among this sender's to this receiver
  std::uint32_t dtype;
  std::uint64_t total;   // bytes of the message
  std::uint64_t length;  // bytes of data in this frame
};
static_assert(sizeof(Frame) == 32);

// A receiver's answer to an offer, once it has a recv for it.
struct Answer {
  std::uint32_t id = 0;
  bool stream = false;  // true: send it in pieces; false: the receiver has read all of it
};

// The ring from one rank to another, as either of them sees it: `doorbell` is the mailbox of the
// other.
class RingPlace {
 public:
  RingPlace(Team& team, int from, int to)
      : lines_(&team.layout().channel(team.base(), from, to)),
        ring_(team.layout().ring(team.base(), from, to)),
        size_(team.layout().ring_bytes()),
        doorbell_(&team.lines(team.rank() == from ? to : from).mailbox) {}

  static constexpr std::size_t line() noexcept { return 64; }
  std::size_t size() const noexcept { return size_; }
  Doorbell& doorbell() const noexcept { return *doorbell_; }
  ChannelLines& lines() const noexcept { return *lines_; }
  std::atomic<std::uint64_t>& tail() const noexcept { return lines_->tail; }
  // The first word of a line; elsewhere it may be data.
  std::atomic_ref<std::uint64_t> flag(std::uint64_t position) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at(position)));
  }
  std::byte* at(std::uint64_t position) const noexcept { return ring_ + (position & (size_ - 1)); }
  // Data lies in the ring from `position` on, and continues at its start.
  void write(std::uint64_t position, const void* from, std::size_t bytes) const noexcept;
  void read(std::uint64_t position, void* to, std::size_t bytes) const noexcept;
  // Only where no peer is about to read.
  void fetch_ahead(std::uint64_t position, std::size_t bytes) const noexcept;

 private:
  ChannelLines* lines_;
  std::byte* ring_;
  std::size_t size_;  // a power of two
  Doorbell* doorbell_;
};

// The sending side of the ring from this rank to a peer.
class Sender {
 public:
  Sender(Team& team, int peer) : ring_(RingPlace(team, team.rank(), peer)) {}
  // The longest message that goes as one frame.
  std::size_t whole_limit() const noexcept;
  // Whether there is room for a frame with so much data now.
  bool has_room(std::size_t bytes) noexcept;
  // Puts a frame for which there is room, and rings the peer.
  void put(const Frame& frame, const void* data) noexcept;
  // Takes the next answer, if there is one.
  bool take_answer(Answer& answer) noexcept;

 private:
  RingSender<RingPlace> ring_;
  std::uint64_t answers_taken_ = 0;
};

// The receiving side of the ring from a peer to this rank.
class Receiver {
 public:
  Receiver(Team& team, int peer) : ring_(RingPlace(team, peer, team.rank())) {}
  // The frame at the front, if there is one.
  bool peek(Frame& frame) const noexcept;
  // Copies its data to `to` and removes the frame.
  void take(const Frame& frame, void* to) noexcept;
  // Removes the frame with its data.
  void drop(const Frame& frame) noexcept;
  // At most kOffers are open at a time, so there is always room.
  void answer(Answer answer) noexcept;

 private:
  RingReceiver<RingPlace> ring_;
  std::uint64_t answers_ = 0;
};

}}}  // namespace c10d::v0::native
