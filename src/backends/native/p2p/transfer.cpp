// SPDX-License-Identifier: BSD-3-Clause
// How messages move: matching, rings, offers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/backends/native/memory/cma.h"
#include "src/backends/native/p2p/messages.h"
#include "src/base/log.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// What one peer may have lying here without a recv.
constexpr std::size_t kHeldBytes = std::size_t{4} << 20;
constexpr std::size_t kHeldMessages = 4096;
// Read from a peer's memory at a time: others get their turn in between.
constexpr std::size_t kMessageReadBytes = std::size_t{1} << 20;

bool matches(int peer, std::uint32_t tag, int source, const Frame& frame) {
  return (peer == source || peer == kAnySource) && tag == frame.tag;
}

}  // namespace

void Messages::Posted::add(Transfer& recv) noexcept {
  recv.before = last_;
  (last_ == nullptr ? first_ : last_->after) = &recv;
  last_ = &recv;
}

void Messages::Posted::remove(Transfer& recv) noexcept {
  if (recv.before == nullptr && first_ != &recv) return;
  (recv.before == nullptr ? first_ : recv.before->after) = recv.after;
  (recv.after == nullptr ? last_ : recv.after->before) = recv.before;
  recv.before = recv.after = nullptr;
}

Messages::Transfer* Messages::Posted::find(int source, const Frame& frame) const noexcept {
  for (Transfer* recv = first_; recv != nullptr; recv = recv->after)
    if (matches(recv->peer, recv->tag, source, frame)) return recv;
  return nullptr;
}

void Messages::post(Transfer& transfer) {
  if (transfer.is_send) {
    Peer& peer = peer_of(transfer.peer);
    if (!peer.queued.empty() || !begin(peer, transfer)) peer.queued.push_back(&transfer);
    return;
  }
  if (!arrived_.empty() && take_arrived(transfer)) return;
  posted_.add(transfer);
  if (transfer.peer == kAnySource)
    progress();
  else
    receive(transfer.peer);
}

bool Messages::take_arrived(Transfer& recv) {
  for (auto it = arrived_.begin(); it != arrived_.end(); ++it) {
    if (!matches(recv.peer, recv.tag, it->source, it->frame)) continue;
    Peer& peer = peer_of(it->source);
    peer.held_bytes -= it->data.size();
    --peer.held;
    const Arrived arrived = std::move(*it);
    arrived_.erase(it);
    accept(arrived.source, peer, arrived.frame, recv, &arrived);
    return true;
  }
  return false;
}

bool Messages::progress() {
  bool moved = false;
  for (int peer = 0; peer < team_->size(); ++peer) moved |= progress(peer);
  return moved;
}

bool Messages::progress(int rank) {
  Peer& peer = peer_of(rank);
  bool moved = !peer.offered.empty() && help(rank);
  moved |= transmit(peer);
  moved |= receive(rank);
  if (!peer.reading.empty()) moved |= read(rank);
  return moved;
}

bool Messages::transmit(Peer& peer) {
  bool moved = !peer.offered.empty() && take_answers(peer);
  if (peer.queued.empty() && peer.streaming.empty()) return moved;
  // A turn ends after a ring's worth of data, however fast the peer empties it.
  std::size_t budget = team_->layout().ring_bytes();
  while (!peer.streaming.empty() && stream(peer, budget)) moved = true;
  while (!peer.queued.empty() && begin(peer, *peer.queued.front())) {
    peer.queued.pop_front();
    moved = true;
  }
  return moved;
}

bool Messages::take_answers(Peer& peer) {
  bool moved = false;
  for (Answer answer; peer.out.take_answer(answer); moved = true) {
    const auto offer = std::find_if(peer.offered.begin(), peer.offered.end(),
                                    [&](const Transfer* send) { return send->id == answer.id; });
    if (offer == peer.offered.end()) continue;
    Transfer& send = **offer;
    peer.offered.erase(offer);
    if (answer.stream)
      peer.streaming.push_back(&send);
    else
      finish(send);
  }
  return moved;
}

bool Messages::stream(Peer& peer, std::size_t& budget) {
  Transfer& send = *peer.streaming.front();
  const std::size_t length = std::min(send.bytes - send.moved, peer.out.whole_limit());
  if (length > budget || !peer.out.has_room(length)) return false;
  peer.out.put({FrameKind::piece, send.tag, send.id, static_cast<std::uint32_t>(send.dtype),
                send.bytes, length},
               send.data + send.moved);
  budget -= length;
  send.moved += length;
  if (send.moved == send.bytes) {
    peer.streaming.pop_front();
    finish(send);
  }
  return true;
}

// Puts the message, or an offer of it, into the ring; false: there is no room.
bool Messages::begin(Peer& peer, Transfer& send) {
  const bool whole = send.bytes <= peer.out.whole_limit();
  const auto address = reinterpret_cast<std::uint64_t>(send.data);
  const std::size_t length = whole ? send.bytes : sizeof address;
  if (!peer.out.has_room(length) || (!whole && peer.offered.size() >= kOffers)) return false;
  if (!whole) {
    peer.offered.push_back(&send);
    send.id = peer.next_id++ & (~0u >> 1);
  }
  peer.out.put({whole ? FrameKind::whole : FrameKind::offer, send.tag, send.id,
                static_cast<std::uint32_t>(send.dtype), send.bytes, length},
               whole ? static_cast<const void*>(send.data) : &address);
  if (whole) finish(send);
  return true;
}

bool Messages::plausible(int source, const Frame& frame) {
  if (frame.kind >= FrameKind::whole && frame.kind <= FrameKind::piece &&
      frame.length <= team_->layout().ring_bytes() && frame.length <= frame.total &&
      frame.dtype < kDTypeCount &&
      (frame.kind != FrameKind::whole || frame.length == frame.total) &&
      (frame.kind != FrameKind::offer || frame.length == sizeof(Message::remote)))
    return true;
  team_->control().fail(
      {.code = Code::corrupt,
       .message = fmt::format("rank {} found no message where rank {} should have put one: "
                              "something overwrote the shared memory",
                              team_->rank(), source),
       .rank = source,
       .group = team_->context().group});
  return false;
}

bool Messages::receive(int rank) {
  Peer& peer = peer_of(rank);
  bool moved = false;
  std::size_t budget = team_->layout().ring_bytes();
  Frame frame;
  while (budget != 0 && peer.in.peek(frame) && !team_->control().broken()) {
    if (!plausible(rank, frame)) return false;
    if (frame.kind == FrameKind::piece) {
      if (!receive_piece(peer, frame)) return moved;
    } else if (Transfer* const recv = posted_.find(rank, frame)) {
      posted_.remove(*recv);
      accept(rank, peer, frame, *recv, nullptr);
    } else if (!hold(rank, peer, frame)) {
      return moved;
    }
    moved = true;
    budget -= std::min(budget, static_cast<std::size_t>(frame.length) + sizeof(Frame));
  }
  return moved;
}

bool Messages::receive_piece(Peer& peer, const Frame& frame) {
  const auto recv = std::find_if(peer.receiving.begin(), peer.receiving.end(),
                                 [&](const Transfer* t) { return t->id == frame.id; });
  if (recv == peer.receiving.end()) return false;  // withdrawn: the group is broken
  Transfer& transfer = **recv;
  if (frame.length > transfer.bytes - transfer.moved) return false;
  peer.in.take(frame, transfer.data + transfer.moved);
  transfer.moved += frame.length;
  if (transfer.moved == transfer.bytes) {
    peer.receiving.erase(recv);
    finish(transfer);
  }
  return true;
}

bool Messages::hold(int source, Peer& peer, const Frame& frame) {
  if (peer.held_bytes + frame.length > kHeldBytes || peer.held == kHeldMessages) return false;
  arrived_.push_back({source, frame, std::vector<std::byte>(frame.length)});
  peer.in.take(frame, arrived_.back().data.data());
  peer.held_bytes += frame.length;
  ++peer.held;
  return true;
}

void Messages::warn_of_unreceived() {
  MutexLock lock(mutex_);
  for (int source = 0; source < team_->size() && !team_->control().broken(); ++source) {
    Peer& peer = peer_of(source);
    std::optional<Frame> first;
    std::size_t count = 0;
    const auto add = [&](const Frame& frame) {
      if (frame.kind != FrameKind::whole) return;  // the sender of an offer waits, and is told
      if (!first) first = frame;
      ++count;
    };
    for (const Arrived& arrived : arrived_)
      if (arrived.source == source) add(arrived.frame);
    for (Frame frame; peer.in.peek(frame) && plausible(source, frame); peer.in.drop(frame))
      add(frame);
    if (first)
      log(LogLevel::warn,
          "group \"{}\": {} message{} from rank {} to rank {} {} never received (tag {}, {} "
          "bytes{})",
          team_->context().group, count, count == 1 ? "" : "s", source, team_->rank(),
          count == 1 ? "was" : "were", first->tag, first->total, count == 1 ? "" : ": the first");
  }
}

bool Messages::fits(int source, const Frame& frame, const Transfer& recv) {
  const auto dtype = static_cast<DType>(frame.dtype);
  if (frame.total == recv.bytes && dtype == recv.dtype) return true;
  team_->control().fail(
      {.code = Code::mismatch,
       .message = fmt::format(
           "rank {} called send({} x {}, peer {}, tag {}), which rank {} met with recv({} x {}, "
           "tag {}); give both the same dtype and count",
           source, to_string(dtype), frame.total / size_of(dtype), team_->rank(), frame.tag,
           team_->rank(), to_string(recv.dtype), recv.bytes / size_of(recv.dtype), recv.tag),
       .rank = source,
       .group = team_->context().group,
       .op = "recv"});
  return false;
}

void Messages::accept(int source, Peer& peer, const Frame& frame, Transfer& recv,
                      const Arrived* held) {
  if (!fits(source, frame, recv)) {
    posted_.add(recv);  // fails with the group
    return;
  }
  const bool offer = frame.kind == FrameKind::offer;
  void* const to = offer ? static_cast<void*>(&recv.remote) : recv.data;
  if (offer) peer.reading.push_back(&recv);
  recv.source = source;
  recv.id = frame.id;
  if (held == nullptr)
    peer.in.take(frame, to);
  else if (frame.length != 0)
    std::memcpy(to, held->data.data(), frame.length);
  if (!offer) finish(recv);
}

bool Messages::read_part(int rank, Transfer& recv, Part part) {
  bool& readable = peer_of(rank).readable;
  readable = readable && read_process(team_->lines(rank).identity.pid, recv.remote + part.first,
                                      recv.data + part.first, part.bytes) == 0;
  return readable;
}

// Lets the sender write what this rank does not read first, unless another recv does so already or
// there is no core to spare.
void Messages::invite(int rank, Transfer& recv) {
  if (taker_ || recv.moved != 0 || recv.bytes < kLeastShared || team_->oversubscribed()) return;
  RankLines& own = team_->lines(team_->rank());
  taker_.emplace(own.message_share, rank, recv.id, recv.data, recv.bytes);
  shared_ = &recv;
  team_->lines(rank).mailbox.ring_shared();
}

// One turn; afterwards nothing is left to the sender if `recv` shares no more.
bool Messages::read_shared(int rank, Transfer& recv) {
  const bool readable = peer_of(rank).readable;
  if (const auto part = readable ? taker_->next() : std::nullopt) {
    read_part(rank, recv, *part);
    return true;
  }
  if (!readable) taker_->close();
  if (!taker_->over()) return false;
  const Part left = taker_->refused();
  if (left.bytes == 0 || read_part(rank, recv, left)) recv.moved = recv.bytes;
  taker_.reset();
  shared_ = nullptr;
  return true;
}

// Writes a part of what the peer reads of an offer.
bool Messages::help(int rank) {
  const std::vector<Transfer*>& offered = peer_of(rank).offered;
  RankLines& theirs = team_->lines(rank);
  const std::uint64_t key = theirs.message_share.flags.key();
  const auto shared = std::find_if(offered.begin(), offered.end(), [&](const Transfer* send) {
    return share_key(team_->rank(), send->id) == key;
  });
  if (shared == offered.end() || !team_->writes() || team_->control().broken()) return false;
  const Gift gift =
      give_chunk(theirs.message_share, key, theirs.identity.pid, (*shared)->data, (*shared)->bytes);
  if (gift == Gift::none) return false;
  if (gift == Gift::refused) team_->cannot_write();
  theirs.mailbox.ring_shared();
  return true;
}

// One turn of reading what a peer has offered. Whatever is in the way, a dead peer too: the offer
// is answered with a request to stream, and who is dead never does.
bool Messages::read(int rank) {
  Peer& peer = peer_of(rank);
  Transfer& recv = *peer.reading.front();
  if (peer.readable) invite(rank, recv);
  if (shared_ == &recv) {
    if (!read_shared(rank, recv)) return false;
    if (shared_ == &recv) return true;
  } else {
    const Part part{recv.moved, std::min(recv.bytes - recv.moved, kMessageReadBytes)};
    if (read_part(rank, recv, part)) recv.moved += part.bytes;
  }
  if (!peer.readable) {
    recv.moved = 0;
    peer.receiving.push_back(&recv);
    peer.reading.pop_front();
    peer.in.answer({recv.id, true});
    return true;
  }
  if (recv.moved != recv.bytes) return true;
  // A sender leaves before it has its answer only after it broke the group: then this may be
  // anything.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (team_->control().broken()) return false;
  peer.reading.pop_front();
  peer.in.answer({recv.id, false});
  finish(recv);
  return true;
}

}}}  // namespace c10d::v0::native
