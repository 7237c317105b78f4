// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backends/native/layout.h"
#include "src/backends/native/team.h"

namespace c10d::inline v0::native {

enum class FrameKind : std::uint32_t {
  whole = 1,  // a message with all its data
  offer,      // a message too long for that: its data follows once it is granted
  piece       // some data of a granted message
};

// What precedes data in a ring. Frames are padded to whole headers.
struct Frame {
  FrameKind kind;
  std::uint32_t tag;
  std::uint32_t id;  // of an offer, among this sender's to this receiver
  std::uint32_t dtype;
  std::uint64_t total;   // bytes of the message
  std::uint64_t length;  // bytes of data in this frame
};
static_assert(sizeof(Frame) == 32);

// The sending side of the ring from this rank to a peer.
class Sender {
 public:
  Sender(Team& team, int peer);
  // The longest message that goes as one frame: a quarter of the ring.
  std::size_t whole_limit() const noexcept { return size_ / 4 - sizeof(Frame); }
  // Data bytes for which there is room in one frame now.
  std::size_t room() noexcept;
  // Puts a frame for which there is room, and rings the peer.
  void put(const Frame& frame, const void* data) noexcept;
  // Takes the next grant, if there is one.
  bool take_grant(std::uint32_t& id) noexcept;

 private:
  void copy_in(std::uint64_t at, const void* from, std::size_t bytes) noexcept;

  ChannelLines& lines_;
  std::byte* const ring_;
  const std::size_t size_;
  Bell& bell_;
  std::uint64_t head_ = 0;
  std::uint64_t grants_taken_ = 0;
};

// The receiving side of the ring from a peer to this rank.
class Receiver {
 public:
  Receiver(Team& team, int peer);
  // The frame at the front, if there is one.
  bool peek(Frame& frame) noexcept;
  // Its data, then the frame is gone.
  void take(const Frame& frame, void* to) noexcept;
  // At most kGrants offers are open at a time, so there is always room.
  void grant(std::uint32_t id) noexcept;

 private:
  void copy_out(std::uint64_t at, void* to, std::size_t bytes) const noexcept;

  ChannelLines& lines_;
  const std::byte* const ring_;
  const std::size_t size_;
  Bell& bell_;
  std::uint64_t tail_ = 0;
  std::uint64_t grants_ = 0;
};

}  // namespace c10d::inline v0::native
