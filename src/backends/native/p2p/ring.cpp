// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/ring.h"

#include <algorithm>
#include <cstring>

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Up to this length two copies cost less than an offer and its answer.
constexpr std::size_t kLongestWhole = std::size_t{32} << 10;
// Many longer frames in a row are slower if their lines are prefetched.
constexpr std::size_t kMostAhead = std::size_t{8} << 10;
constexpr std::size_t kFlagBytes = sizeof(std::uint64_t);

// The bytes of the ring that a frame takes.
constexpr std::size_t footprint(std::size_t bytes) {
  constexpr std::size_t kLine = RingPlace::line();
  return (sizeof(Frame) + bytes + kLine - 1) / kLine * kLine;
}

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

std::uint64_t flag_of(const Frame& frame) noexcept {
  std::uint64_t word;
  std::memcpy(&word, &frame, kFlagBytes);
  return word;
}

}  // namespace

void RingPlace::write(std::uint64_t position, const void* from, std::size_t bytes) const noexcept {
  std::byte* const first = at(position);
  const auto straight = std::min(bytes, static_cast<std::size_t>(ring_ + size_ - first));
  std::memcpy(first, from, straight);
  if (straight != bytes)
    std::memcpy(ring_, static_cast<const std::byte*>(from) + straight, bytes - straight);
}

void RingPlace::read(std::uint64_t position, void* to, std::size_t bytes) const noexcept {
  const std::byte* const first = at(position);
  const auto straight = std::min(bytes, static_cast<std::size_t>(ring_ + size_ - first));
  std::memcpy(to, first, straight);
  if (straight != bytes)
    std::memcpy(static_cast<std::byte*>(to) + straight, ring_, bytes - straight);
}

void RingPlace::fetch_ahead(std::uint64_t position, std::size_t bytes) const noexcept {
  const std::byte* const first = at(position);
  fetch_for_writing(first, std::min(bytes, static_cast<std::size_t>(ring_ + size_ - first)));
}

std::size_t Sender::whole_limit() const noexcept {
  return std::min(kLongestWhole, ring_.place().size() / 4 - RingPlace::line());
}

bool Sender::has_room(std::size_t bytes) noexcept { return ring_.has_room(footprint(bytes)); }

void Sender::put(const Frame& frame, const void* data) noexcept {
  const RingPlace& place = ring_.place();
  std::uint64_t next = 0;
  ring_.put(footprint(frame.length), flag_of(frame), [&](std::uint64_t position) {
    std::memcpy(place.at(position) + kFlagBytes,
                reinterpret_cast<const std::byte*>(&frame) + kFlagBytes, sizeof frame - kFlagBytes);
    if (frame.length != 0) place.write(position + sizeof frame, data, frame.length);
    next = position + footprint(frame.length);
  });
  // The receiver's cache has the lines of the next frame, if that is as long, and the line behind
  // it, which is cleared. Fetch them back meanwhile, except the first: it is here already, and the
  // receiver may poll it.
  const std::size_t ahead = footprint(frame.length);
  if (ahead > RingPlace::line() && ahead <= kMostAhead && ring_.has_room(ahead))
    place.fetch_ahead(next + RingPlace::line(), ahead);
}

bool Sender::take_answer(Answer& answer) noexcept {
  const auto& answers = ring_.place().lines().answers;
  if (!answers.has_more(answers_taken_)) return false;
  const std::uint32_t word = answers.at(answers_taken_++);
  answer = {word >> 1, (word & 1) != 0};
  return true;
}

bool Receiver::peek(Frame& frame) const noexcept {
  const std::uint64_t word = ring_.peek();
  if (word == 0) return false;
  std::memcpy(&frame, &word, kFlagBytes);
  std::memcpy(reinterpret_cast<std::byte*>(&frame) + kFlagBytes,
              ring_.place().at(ring_.position()) + kFlagBytes, sizeof frame - kFlagBytes);
  return true;
}

void Receiver::take(const Frame& frame, void* to) noexcept {
  if (frame.length != 0) ring_.place().read(ring_.position() + sizeof frame, to, frame.length);
  ring_.take(footprint(frame.length));
}

void Receiver::drop(const Frame& frame) noexcept { ring_.take(footprint(frame.length)); }

void Receiver::answer(Answer answer) noexcept {
  const RingPlace& place = ring_.place();
  place.lines().answers.give(answers_++, answer.id << 1 | (answer.stream ? 1u : 0u),
                             place.doorbell());
}

}}}  // namespace c10d::v0::native
