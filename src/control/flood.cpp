// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/flood.h"

#include <algorithm>
#include <utility>

#include "src/base/failure_text.h"
#include "src/net/bytes.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr int kNobody = -1;

}  // namespace

Flood::Flood(int rank, int size, const std::vector<int>& neighbours, Ends ends)
    : rank_(rank),
      neighbours_(neighbours),
      ends_(std::move(ends)),
      left_(static_cast<std::size_t>(size)),
      ended_(static_cast<std::size_t>(size)),
      linked_(static_cast<std::size_t>(size)) {
  for (const int neighbour : neighbours) set(linked_, neighbour);
}

bool Flood::take(int from, std::uint8_t frame, const std::string& body) {
  switch (frame) {
    case revoke_frame:
      if (ends_.broken()) return true;
      ends_.break_here(from_text(body));
      ends_.send(revoke_frame, body, from);
      return true;
    case left_frame:
      return take_left(from, body);
    case ended_frame:
      return take_ended(from, body);
    default:
      return false;
  }
}

bool Flood::take_left(int from, std::string_view body) {
  ByteReader reader(body);
  const auto rank = reader.take<std::uint32_t>();
  LastCalls last{};
  for (std::uint64_t& sequence : last) sequence = reader.take<std::uint64_t>();
  if (!reader.finished() || !is_rank(rank)) return false;
  ends_.left(static_cast<int>(rank), last);
  if (set(left_, static_cast<int>(rank))) ends_.send(left_frame, body, from);
  return true;
}

bool Flood::take_ended(int from, std::string_view body) {
  ByteReader reader(body);
  const auto rank = reader.take<std::uint32_t>();
  if (!reader.finished() || !is_rank(rank)) return false;
  note_ended(static_cast<int>(rank), from);
  return true;
}

// `from`: who said so.
void Flood::note_ended(int rank, int from) {
  if (!set(ended_, rank)) return;
  ends_.awaits_end(awaits_end());
  std::string word;
  put(word, static_cast<std::uint32_t>(rank));
  ends_.send(ended_frame, word, from);
}

void Flood::note_dead(int rank) { note_ended(rank, kNobody); }

void Flood::lose(int neighbour, bool ended) {
  linked_[static_cast<std::size_t>(neighbour)].store(false, std::memory_order_relaxed);
  if (ended && !has_left(neighbour)) note_ended(neighbour, kNobody);
  ends_.awaits_end(awaits_end());
}

bool Flood::awaits_end() const noexcept {
  return std::ranges::any_of(neighbours_, [this](int neighbour) {
    return is_set(ended_, neighbour) && is_set(linked_, neighbour);
  });
}

void Flood::break_group(const Failure& cause) {
  ends_.break_here(cause);
  ends_.send(revoke_frame, text_of(cause), kNobody);
}

void Flood::leave(const LastCalls& last) {
  std::string word;
  put(word, static_cast<std::uint32_t>(rank_));
  for (const std::uint64_t sequence : last) put(word, sequence);
  ends_.send(left_frame, word, kNobody);
}

void Flood::note_left(int rank, const LastCalls& last) {
  ends_.left(rank, last);
  set(left_, rank);
}

std::string Flood::text_of(Failure failure) {
  constexpr std::size_t kMost = sizeof(SharedFailure::message) - 1;
  failure.message.resize(fitting(failure.message, kMost));
  return to_text(failure);
}

}}  // namespace c10d::v0
