// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/send_queue.h"

#include <algorithm>

namespace c10d { inline namespace v0 { namespace native {

void SendQueue::post(Transfer& send) {
  if (!queued_.empty() || !begin(send)) queued_.push_back(&send);
}

bool SendQueue::progress() {
  bool moved = !offered_.empty() && put_part();
  moved |= !offered_.empty() && take_answers();
  if (queued_.empty() && streaming_.empty()) return moved;
  // A turn ends after a ring's worth of data, however fast the peer empties it.
  std::size_t budget = team_->layout().ring_bytes();
  while (!streaming_.empty() && stream(budget)) moved = true;
  while (!queued_.empty() && begin(*queued_.front())) {
    queued_.pop_front();
    moved = true;
  }
  return moved;
}

// Writes one chunk of the offered message that the peer reads, into the peer's memory.
bool SendQueue::put_part() {
  RankLines& theirs = team_->lines(peer_);
  const std::uint64_t key = theirs.message_share.flags.key();
  const auto shared = std::find_if(offered_.begin(), offered_.end(), [&](const Transfer* send) {
    return share_key(rank_, send->id) == key;
  });
  if (shared == offered_.end() || !team_->writes() || team_->control().broken()) return false;
  const ChunkResult result =
      copy_chunk(theirs.message_share, key, theirs.identity.pid, (*shared)->data, (*shared)->bytes);
  if (result == ChunkResult::none) return false;
  if (result == ChunkResult::refused) team_->cannot_write();
  theirs.mailbox.ring_shared();
  return true;
}

bool SendQueue::take_answers() {
  bool moved = false;
  for (Answer answer; ring_.take_answer(answer); moved = true) {
    const auto offer = std::find_if(offered_.begin(), offered_.end(),
                                    [&](const Transfer* send) { return send->id == answer.id; });
    if (offer == offered_.end()) continue;
    Transfer& send = **offer;
    offered_.erase(offer);
    if (answer.stream)
      streaming_.push_back(&send);
    else
      send.finish();
  }
  return moved;
}

bool SendQueue::stream(std::size_t& budget) {
  Transfer& send = *streaming_.front();
  const std::size_t length = std::min(send.bytes - send.moved, ring_.whole_limit());
  if (length > budget || !ring_.has_room(length)) return false;
  ring_.put({FrameKind::piece, send.tag, send.id, static_cast<std::uint32_t>(send.dtype),
             send.bytes, length},
            send.data + send.moved);
  budget -= length;
  send.moved += length;
  if (send.moved == send.bytes) {
    streaming_.pop_front();
    send.finish();
  }
  return true;
}

// Puts the message, or an offer of it, into the ring; false: there is no room.
bool SendQueue::begin(Transfer& send) {
  const bool whole = send.bytes <= ring_.whole_limit();
  const auto address = reinterpret_cast<std::uint64_t>(send.data);
  const std::size_t length = whole ? send.bytes : sizeof address;
  if (!ring_.has_room(length) || (!whole && offered_.size() >= kOffers)) return false;
  if (!whole) {
    offered_.push_back(&send);
    send.id = next_id_++ & (~0u >> 1);
  }
  ring_.put({whole ? FrameKind::whole : FrameKind::offer, send.tag, send.id,
             static_cast<std::uint32_t>(send.dtype), send.bytes, length},
            whole ? static_cast<const void*>(send.data) : &address);
  if (whole) send.finish();
  return true;
}

void SendQueue::withdraw(Transfer& send) noexcept {
  std::erase(queued_, &send);
  std::erase(offered_, &send);
  std::erase(streaming_, &send);
}

}}}  // namespace c10d::v0::native
