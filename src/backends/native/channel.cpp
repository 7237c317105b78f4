// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/channel.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace c10d::inline v0::native {
namespace {

constexpr std::size_t kRingLine = 64;
// Short of this, two copies cost less than asking for one.
constexpr std::size_t kLongestWhole = std::size_t{32} << 10;

// What a frame takes of the ring.
constexpr std::size_t footprint(std::size_t bytes) {
  return (sizeof(Frame) + bytes + kRingLine - 1) / kRingLine * kRingLine;
}

// Mailboxes are rung by many ranks, so their flags need sequential consistency: see Bell.
constexpr auto kRingOrder = std::memory_order_seq_cst;

using RingFlag = std::atomic_ref<std::uint64_t>;
static_assert(RingFlag::is_always_lock_free);

std::uint64_t flag_of(const Frame& frame) noexcept {
  std::uint64_t word;
  std::memcpy(&word, &frame, sizeof word);
  return word;
}

}  // namespace

Sender::Sender(Team& team, int peer)
    : lines_(team.layout().channel(team.base(), team.rank(), peer)),
      ring_(team.layout().ring(team.base(), team.rank(), peer)),
      size_(team.layout().ring_bytes()),
      bell_(team.lines(peer).mailbox) {}

std::size_t Sender::whole_limit() const noexcept {
  return std::min(kLongestWhole, size_ / 4 - kRingLine);
}

std::uint64_t& Sender::flag(std::uint64_t at) const noexcept {
  return *reinterpret_cast<std::uint64_t*>(ring_ + (at & (size_ - 1)));
}

// Beside the frame, the flag of the next one must be free to be cleared.
bool Sender::has_room(std::size_t bytes) noexcept {
  const std::size_t needed = footprint(bytes) + kRingLine;
  if (size_ - (head_ - tail_) >= needed) return true;
  tail_ = lines_.tail.load(kRingOrder);
  return size_ - (head_ - tail_) >= needed;
}

void Sender::put(const Frame& frame, const void* data) noexcept {
  const std::size_t first = head_ & (size_ - 1);
  const std::size_t next = footprint(frame.length);
  // What was there in the last turn of the ring must not pass for a frame.
  RingFlag(flag(head_ + next)).store(0, std::memory_order_relaxed);
  std::memcpy(ring_ + first + sizeof(std::uint64_t),
              reinterpret_cast<const std::byte*>(&frame) + sizeof(std::uint64_t),
              sizeof frame - sizeof(std::uint64_t));
  if (frame.length != 0) {
    const std::size_t straight = std::min<std::size_t>(frame.length, size_ - first - sizeof frame);
    std::memcpy(ring_ + first + sizeof frame, data, straight);
    if (straight != frame.length)
      std::memcpy(ring_, static_cast<const std::byte*>(data) + straight, frame.length - straight);
  }
  RingFlag(flag(head_)).store(flag_of(frame), kRingOrder);
  head_ += next;
  bell_.ring_shared();
}

bool Sender::take_answer(Answer& answer) noexcept {
  if (lines_.answered.load(kRingOrder) == answers_taken_) return false;
  const std::uint32_t word = lines_.answers[answers_taken_++ % kOffers];
  answer = {word >> 1, (word & 1) != 0};
  return true;
}

Receiver::Receiver(Team& team, int peer)
    : lines_(team.layout().channel(team.base(), peer, team.rank())),
      ring_(team.layout().ring(team.base(), peer, team.rank())),
      size_(team.layout().ring_bytes()),
      bell_(team.lines(peer).mailbox) {}

bool Receiver::peek(Frame& frame) const noexcept {
  std::byte* const front = ring_ + (tail_ & (size_ - 1));
  const std::uint64_t word = RingFlag(*reinterpret_cast<std::uint64_t*>(front)).load(kRingOrder);
  if (word == 0) return false;
  std::memcpy(&frame, &word, sizeof word);
  std::memcpy(reinterpret_cast<std::byte*>(&frame) + sizeof word, front + sizeof word,
              sizeof frame - sizeof word);
  return true;
}

void Receiver::take(const Frame& frame, void* to) noexcept {
  if (frame.length != 0) {
    const std::size_t first = (tail_ & (size_ - 1)) + sizeof frame;
    const std::size_t straight = std::min<std::size_t>(frame.length, size_ - first);
    std::memcpy(to, ring_ + first, straight);
    if (straight != frame.length)
      std::memcpy(static_cast<std::byte*>(to) + straight, ring_, frame.length - straight);
  }
  tail_ += footprint(frame.length);
  // Not for every frame: a sender that lacks room has at least half a ring in flight.
  if (tail_ - told_ < size_ / 8) return;
  told_ = tail_;
  lines_.tail.store(tail_, kRingOrder);
  bell_.ring_shared();
}

void Receiver::answer(Answer answer) noexcept {
  lines_.answers[answers_ % kOffers] = answer.id << 1 | (answer.stream ? 1u : 0u);
  lines_.answered.store(++answers_, kRingOrder);
  bell_.ring_shared();
}

}  // namespace c10d::inline v0::native
