// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/channel.h"

#include <algorithm>
#include <cstring>

namespace c10d::inline v0::native {
namespace {

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + sizeof(Frame) - 1) / sizeof(Frame) * sizeof(Frame);
}

// Mailboxes are rung by many ranks, so their flags need sequential consistency: see Bell.
constexpr auto kOrder = std::memory_order_seq_cst;

}  // namespace

Sender::Sender(Team& team, int peer)
    : lines_(team.layout().channel(team.base(), team.rank(), peer)),
      ring_(team.layout().ring(team.base(), team.rank(), peer)),
      size_(team.layout().ring_bytes()),
      bell_(team.lines(peer).mailbox) {}

std::size_t Sender::room() noexcept {
  const std::size_t free = size_ - (head_ - lines_.tail.load(kOrder));
  return free <= sizeof(Frame) ? 0 : free - sizeof(Frame);
}

void Sender::put(const Frame& frame, const void* data) noexcept {
  copy_in(head_, &frame, sizeof frame);
  copy_in(head_ + sizeof frame, data, frame.length);
  head_ += sizeof frame + padded(frame.length);
  lines_.head.store(head_, kOrder);
  bell_.ring_shared();
}

void Sender::copy_in(std::uint64_t at, const void* from, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  const std::size_t first = at & (size_ - 1);
  const std::size_t straight = std::min(bytes, size_ - first);
  std::memcpy(ring_ + first, from, straight);
  std::memcpy(ring_, static_cast<const std::byte*>(from) + straight, bytes - straight);
}

bool Sender::take_grant(std::uint32_t& id) noexcept {
  if (lines_.granted.load(kOrder) == grants_taken_) return false;
  id = lines_.grants[grants_taken_++ % kGrants];
  return true;
}

Receiver::Receiver(Team& team, int peer)
    : lines_(team.layout().channel(team.base(), peer, team.rank())),
      ring_(team.layout().ring(team.base(), peer, team.rank())),
      size_(team.layout().ring_bytes()),
      bell_(team.lines(peer).mailbox) {}

bool Receiver::peek(Frame& frame) noexcept {
  if (lines_.head.load(kOrder) == tail_) return false;
  copy_out(tail_, &frame, sizeof frame);
  return true;
}

void Receiver::take(const Frame& frame, void* to) noexcept {
  copy_out(tail_ + sizeof frame, to, frame.length);
  tail_ += sizeof frame + padded(frame.length);
  lines_.tail.store(tail_, kOrder);
  bell_.ring_shared();
}

void Receiver::copy_out(std::uint64_t at, void* to, std::size_t bytes) const noexcept {
  if (bytes == 0) return;
  const std::size_t first = at & (size_ - 1);
  const std::size_t straight = std::min(bytes, size_ - first);
  std::memcpy(to, ring_ + first, straight);
  std::memcpy(static_cast<std::byte*>(to) + straight, ring_, bytes - straight);
}

void Receiver::grant(std::uint32_t id) noexcept {
  lines_.grants[grants_ % kGrants] = id;
  lines_.granted.store(++grants_, kOrder);
  bell_.ring_shared();
}

}  // namespace c10d::inline v0::native
