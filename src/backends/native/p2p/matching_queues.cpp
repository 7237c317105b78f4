// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/matching_queues.h"

#include <algorithm>
#include <utility>

namespace c10d { inline namespace v0 { namespace native {
namespace {

bool matches(const Transfer& recv, int source, const Frame& frame) {
  return (recv.peer == source || recv.peer == kAnySource) && recv.tag == frame.tag;
}

template <class Arrived>
auto find(Arrived& arrived, const Transfer& recv) {
  return std::find_if(arrived.begin(), arrived.end(), [&](const auto& message) {
    return matches(recv, message.source, message.frame);
  });
}

}  // namespace

void MatchingQueues::post(Transfer& recv) noexcept {
  recv.before = last_;
  (last_ == nullptr ? first_ : last_->after) = &recv;
  last_ = &recv;
}

void MatchingQueues::remove(Transfer& recv) noexcept {
  if (recv.before == nullptr && first_ != &recv) return;
  (recv.before == nullptr ? first_ : recv.before->after) = recv.after;
  (recv.after == nullptr ? last_ : recv.after->before) = recv.before;
  recv.before = recv.after = nullptr;
}

Transfer* MatchingQueues::take_posted(int source, const Frame& frame) noexcept {
  Transfer* recv = first_;
  while (recv != nullptr && !matches(*recv, source, frame)) recv = recv->after;
  if (recv != nullptr) remove(*recv);
  return recv;
}

MatchingQueues::Arrived* MatchingQueues::hold(int source, const Frame& frame) {
  Held& held = held_[static_cast<std::size_t>(source)];
  if (held.bytes + frame.length > kHeldBytes || held.messages == kHeldMessages) return nullptr;
  arrived_.push_back({source, frame, std::vector<std::byte>(frame.length)});
  held.bytes += frame.length;
  ++held.messages;
  return &arrived_.back();
}

const MatchingQueues::Arrived* MatchingQueues::find_arrived(const Transfer& recv) const noexcept {
  const auto it = find(arrived_, recv);
  return it == arrived_.end() ? nullptr : &*it;
}

std::optional<MatchingQueues::Arrived> MatchingQueues::take_arrived(const Transfer& recv) {
  const auto it = find(arrived_, recv);
  if (it == arrived_.end()) return std::nullopt;
  Held& held = held_[static_cast<std::size_t>(it->source)];
  held.bytes -= it->data.size();
  --held.messages;
  std::optional<Arrived> arrived(std::move(*it));
  arrived_.erase(it);
  return arrived;
}

}}}  // namespace c10d::v0::native
