// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/transfer_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "src/backends/common/failures.h"
#include "src/backends/common/message_header.h"
#include "src/backends/native/memory/cma.h"
#include "src/base/log.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// The most that one turn reads from a peer's memory, so that other transfers get their turns.
constexpr std::size_t kMessageReadBytes = std::size_t{1} << 20;

}  // namespace

TransferEngine::TransferEngine(Team& team) : team_(team), queues_(team.size()) {
  for (int peer = 0; peer < team_.size(); ++peer)
    peers_.push_back({.sends = SendQueue(team_, peer),
                      .ring = Receiver(team_, peer),
                      .readable = team_.reads(peer),
                      .reading = {},
                      .receiving = {}});
}

void TransferEngine::post(Transfer& transfer) {
  if (transfer.is_send) {
    peer_of(transfer.peer).sends.post(transfer);
  } else if (const auto held = queues_.take_arrived(transfer)) {
    accept(held->source, held->frame, transfer, &held->data);
  } else {
    queues_.post(transfer);
    if (transfer.peer == kAnySource)
      progress();
    else
      receive(transfer.peer);
  }
}

bool TransferEngine::progress() {
  bool moved = false;
  for (int peer = 0; peer < team_.size(); ++peer) moved |= progress(peer);
  return moved;
}

bool TransferEngine::progress(int rank) {
  Peer& peer = peer_of(rank);
  bool moved = peer.sends.progress();
  moved |= receive(rank);
  if (!peer.reading.empty()) moved |= read(rank);
  return moved;
}

std::optional<Received> TransferEngine::probe(int source, std::uint32_t tag) {
  progress();
  const auto message = [](int from, const Frame& frame) {
    return Received{from, frame.total / size_of(static_cast<DType>(frame.dtype))};
  };
  Transfer recv;
  recv.peer = source;
  recv.tag = tag;
  if (const auto* held = queues_.find_arrived(recv)) return message(held->source, held->frame);
  for (int rank = 0; rank < team_.size(); ++rank) {  // what is not held waits in its ring
    Frame frame;
    if ((source == rank || source == kAnySource) && peer_of(rank).ring.peek(frame) &&
        plausible(rank, frame) && frame.kind != FrameKind::piece && frame.tag == tag)
      return message(rank, frame);
  }
  return std::nullopt;
}

bool TransferEngine::plausible(int source, const Frame& frame) {
  if (frame.kind >= FrameKind::whole && frame.kind <= FrameKind::piece &&
      frame.length <= team_.layout().ring_bytes() && frame.length <= frame.total &&
      frame.dtype < kDTypeCount &&
      (frame.kind != FrameKind::whole || frame.length == frame.total) &&
      (frame.kind != FrameKind::offer || frame.length == sizeof(Transfer::remote)))
    return true;
  team_.control().fail(
      failure_in(team_.context(), Code::corrupt,
                 fmt::format("rank {} found no message where rank {} should have put one: "
                             "something overwrote the shared memory",
                             team_.rank(), source),
                 source));
  return false;
}

bool TransferEngine::receive(int source) {
  Peer& peer = peer_of(source);
  bool moved = false;
  std::size_t budget = team_.layout().ring_bytes();
  Frame frame;
  while (budget != 0 && peer.ring.peek(frame) && !team_.control().broken()) {
    if (!plausible(source, frame)) return false;
    if (frame.kind == FrameKind::piece) {
      if (!receive_piece(peer, frame)) return moved;
    } else if (Transfer* const recv = queues_.take_posted(source, frame)) {
      accept(source, frame, *recv, nullptr);
    } else if (!queues_.hold(source, frame, peer.ring)) {
      return moved;
    }
    moved = true;
    budget -= std::min(budget, static_cast<std::size_t>(frame.length) + sizeof(Frame));
  }
  return moved;
}

bool TransferEngine::receive_piece(Peer& peer, const Frame& frame) {
  const auto recv = std::find_if(peer.receiving.begin(), peer.receiving.end(),
                                 [&](const Transfer* t) { return t->id == frame.id; });
  if (recv == peer.receiving.end()) return false;  // withdrawn: the group is broken
  Transfer& transfer = **recv;
  if (frame.length > transfer.bytes - transfer.moved) return false;
  peer.ring.take(frame, transfer.data + transfer.moved);
  transfer.moved += frame.length;
  if (transfer.moved == transfer.bytes) {
    peer.receiving.erase(recv);
    transfer.finish();
  }
  return true;
}

void TransferEngine::warn_of_unreceived() {
  for (int source = 0; source < team_.size() && !team_.control().broken(); ++source) {
    Peer& peer = peer_of(source);
    std::optional<Frame> first;
    std::size_t count = 0;
    const auto add = [&](const Frame& frame) {
      if (frame.kind != FrameKind::whole) return;  // the send of an offer fails with the group
      if (!first) first = frame;
      ++count;
    };
    for (const auto& arrived : queues_.arrived())
      if (arrived.source == source) add(arrived.frame);
    for (Frame frame; peer.ring.peek(frame) && plausible(source, frame); peer.ring.drop(frame))
      add(frame);
    if (first)
      log(LogLevel::warn,
          "group \"{}\": {} message{} from rank {} to rank {} {} never received (tag {}, {} "
          "bytes{})",
          team_.context().group, count, count == 1 ? "" : "s", source, team_.rank(),
          count == 1 ? "was" : "were", first->tag, first->total, count == 1 ? "" : ": the first");
  }
}

bool TransferEngine::fits(int source, const Frame& frame, const Transfer& recv) {
  const auto dtype = static_cast<DType>(frame.dtype);
  const View output(recv.data, recv.bytes / size_of(recv.dtype), recv.dtype);
  const std::string mismatch =
      message_mismatch(dtype, frame.total / size_of(dtype), source, team_.rank(),
                       {output, source, recv.tag, recv.exact});
  if (mismatch.empty()) return true;
  team_.control().fail({.code = Code::mismatch,
                        .message = mismatch,
                        .rank = source,
                        .group = team_.context().group,
                        .op = "recv"});
  return false;
}

void TransferEngine::accept(int source, const Frame& frame, Transfer& recv,
                            const std::vector<std::byte>* held) {
  Peer& peer = peer_of(source);
  if (!fits(source, frame, recv)) {
    queues_.post(recv);  // fails with the group
    return;
  }
  const bool offer = frame.kind == FrameKind::offer;
  void* const to = offer ? static_cast<void*>(&recv.remote) : recv.data;
  if (offer) peer.reading.push_back(&recv);
  recv.source = source;
  recv.id = frame.id;
  recv.bytes = frame.total;
  if (held == nullptr)
    peer.ring.take(frame, to);
  else if (frame.length != 0)
    std::memcpy(to, held->data(), frame.length);
  if (!offer) recv.finish();
}

void TransferEngine::withdraw(Transfer& transfer) {
  if (transfer.is_send) {
    peer_of(transfer.peer).sends.withdraw(transfer);
  } else {
    queues_.remove(transfer);
    for (Peer& peer : peers_) {
      std::erase(peer.reading, &transfer);
      std::erase(peer.receiving, &transfer);
    }
  }
  if (shared_ == &transfer) {
    receiver_->withdraw(team_.control());
    receiver_.reset();
    shared_ = nullptr;
  }
  // A peer that reads what is written into this memory next must also see that the group is broken.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool TransferEngine::read_part(int source, Transfer& recv, Part part) {
  bool& readable = peer_of(source).readable;
  readable = readable && read_process(team_.lines(source).identity.pid, recv.remote + part.first,
                                      recv.data + part.first, part.bytes) == 0;
  return readable;
}

// Lets the sender write what this rank does not read first, unless another recv does so already or
// there is no core to spare.
void TransferEngine::share(int source, Transfer& recv) {
  if (receiver_ || recv.moved != 0 || recv.bytes < kLeastShared || team_.oversubscribed()) return;
  RankLines& own = team_.lines(team_.rank());
  receiver_.emplace(own.message_share, source, recv.id, recv.data, recv.bytes);
  shared_ = &recv;
  team_.lines(source).mailbox.ring_shared();
}

// One turn. If `recv` is not shared_ afterwards, the sender has nothing left to write.
bool TransferEngine::read_shared(int source, Transfer& recv) {
  const bool readable = peer_of(source).readable;
  if (const auto part = readable ? receiver_->next() : std::nullopt) {
    read_part(source, recv, *part);
    return true;
  }
  if (!readable) receiver_->close();
  if (!receiver_->finished()) return false;
  const Part left = receiver_->refused();
  if (left.bytes == 0 || read_part(source, recv, left)) recv.moved = recv.bytes;
  receiver_.reset();
  shared_ = nullptr;
  return true;
}

// One turn of reading what a peer has offered. If its memory cannot be read, for whatever reason,
// the offer is answered with a request to stream. A dead peer never streams, and its death breaks
// the group.
bool TransferEngine::read(int source) {
  Peer& peer = peer_of(source);
  Transfer& recv = *peer.reading.front();
  if (peer.readable) share(source, recv);
  if (shared_ == &recv) {
    if (!read_shared(source, recv)) return false;
    if (shared_ == &recv) return true;
  } else {
    const Part part{recv.moved, std::min(recv.bytes - recv.moved, kMessageReadBytes)};
    if (read_part(source, recv, part)) recv.moved += part.bytes;
  }
  if (!peer.readable) {
    recv.moved = 0;
    peer.receiving.push_back(&recv);
    peer.reading.pop_front();
    peer.ring.answer({recv.id, true});
    return true;
  }
  if (recv.moved != recv.bytes) return true;
  // A sender that leaves before it has the answer breaks the group first. Then the bytes read here
  // may be anything.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (team_.control().broken()) return false;
  peer.reading.pop_front();
  peer.ring.answer({recv.id, false});
  recv.finish();
  return true;
}

}}}  // namespace c10d::v0::native
