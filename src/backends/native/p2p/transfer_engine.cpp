// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/transfer_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/backends/common/message_header.h"
#include "src/backends/native/memory/cma.h"
#include "src/base/log.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// The most that one turn reads from a peer's memory, so that other transfers get their turns.
constexpr std::size_t kMessageReadBytes = std::size_t{1} << 20;

// What a wire may bring is held.
static_assert(Wire::kCredit <= MatchingQueues::kHeldBytes &&
              Wire::kCredit / Wire::kMessageCost <= MatchingQueues::kHeldMessages);

}  // namespace

TransferEngine::TransferEngine(Team& team, const BackendContext& context,
                               const std::vector<int>& places,
                               std::vector<Mesh::Connection> connections)
    : team_(team),
      context_(context),
      control_(*context.control),
      by_rank_(places.size()),
      wires_(context, std::move(connections)),
      queues_(context.size) {
  for (int rank = 0; rank < context_.size; ++rank) {
    const int place = places[static_cast<std::size_t>(rank)];
    if (place < 0) continue;
    peers_.push_back({.rank = rank,
                      .place = place,
                      .sends = SendQueue(team_, context_.rank, place),
                      .ring = Receiver(team_, place),
                      .readable = team_.reads(place),
                      .reading = {},
                      .receiving = {}});
    by_rank_[static_cast<std::size_t>(rank)] = &peers_.back();
  }
}

void TransferEngine::post(Transfer& transfer) {
  if (transfer.is_send) {
    if (Peer* const peer = peer_of(transfer.peer)) return peer->sends.post(transfer);
    wires_.at(transfer.peer)->post(transfer);
    wires_.update(transfer.peer);
  } else if (const auto held = queues_.take_arrived(transfer)) {
    accept(held->source, held->frame, transfer,
           [&](void* to) { std::ranges::copy(held->data, static_cast<std::byte*>(to)); });
    flush(held->source);
  } else {
    queues_.post(transfer);
    if (transfer.peer == kAnySource)
      progress();
    else if (Peer* const peer = peer_of(transfer.peer))
      receive(*peer);
    else
      progress_wire(transfer.peer);
  }
}

bool TransferEngine::progress() {
  bool moved = false;
  for (Peer& peer : peers_) moved |= progress(peer);
  if (wires_.empty()) return moved;
  for (const int rank : wires_.ready()) moved |= progress_wire(rank);
  return moved;
}

bool TransferEngine::progress(int rank) {
  Peer* const peer = peer_of(rank);
  return peer != nullptr ? progress(*peer) : progress_wire(rank);
}

bool TransferEngine::progress(Peer& peer) {
  bool moved = peer.sends.progress();
  moved |= receive(peer);
  if (!peer.reading.empty()) moved |= read(peer);
  return moved;
}

bool TransferEngine::progress_wire(int rank) {
  Wire& wire = *wires_.at(rank);
  if (wire.state() != Wire::State::alive) return false;
  bool moved =
      wire.read([&](const Frame& frame, const std::byte* data) { deliver(rank, frame, data); });
  moved |= flush(rank);
  if (wire.state() == Wire::State::corrupt)
    control_.fail(failure_in(context_, Code::corrupt,
                             fmt::format("the connection from rank {} to rank {} is unusable: {}",
                                         rank, context_.rank, wire.why()),
                             rank));
  return moved;
}

// Sends what waits, and what came to be sent as something was received. Nothing on this host.
bool TransferEngine::flush(int rank) {
  Wire* const wire = wires_.at(rank);
  if (wire == nullptr) return false;
  const bool moved = wire->write();
  wires_.update(rank);
  return moved;
}

// A wire brings no more than may be held.
void TransferEngine::deliver(int source, const Frame& frame, const std::byte* data) {
  if (Transfer* const recv = queues_.take_posted(source, frame))
    accept(source, frame, *recv,
           [&](void* to) { std::copy_n(data, frame.length, static_cast<std::byte*>(to)); });
  else if (frame.length != 0)
    std::memcpy(queues_.hold(source, frame)->data.data(), data, frame.length);
  else
    queues_.hold(source, frame);
}

// The rank that it waits for; kAnySource: it may be any.
int TransferEngine::awaited(const Transfer& transfer) noexcept {
  return transfer.is_send || transfer.source < 0 ? transfer.peer : transfer.source;
}

std::optional<TransferEngine::Loss> TransferEngine::loss(const Transfer& transfer) const {
  const int rank = awaited(transfer);
  if (!wires_.any_ended() || rank == kAnySource) return std::nullopt;
  const Wire* const wire = wires_.at(rank);
  if (wire == nullptr || wire->state() != Wire::State::lost) return std::nullopt;
  return Loss{rank, wire->why()};
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
  for (Peer& peer : peers_) {  // what is not held waits in its ring
    Frame frame;
    if ((source == peer.rank || source == kAnySource) && peer.ring.peek(frame) &&
        plausible(peer.rank, frame) && frame.kind != FrameKind::piece && frame.tag == tag)
      return message(peer.rank, frame);
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
  control_.fail(
      failure_in(context_, Code::corrupt,
                 fmt::format("rank {} found no message where rank {} should have put one: "
                             "something overwrote the shared memory",
                             context_.rank, source),
                 source));
  return false;
}

bool TransferEngine::receive(Peer& peer) {
  bool moved = false;
  std::size_t budget = team_.layout().ring_bytes();
  Frame frame;
  while (budget != 0 && peer.ring.peek(frame) && !control_.broken()) {
    if (!plausible(peer.rank, frame)) return false;
    if (frame.kind == FrameKind::piece) {
      if (!receive_piece(peer, frame)) return moved;
    } else if (Transfer* const recv = queues_.take_posted(peer.rank, frame)) {
      accept(peer.rank, frame, *recv, [&](void* to) { peer.ring.take(frame, to); });
    } else if (auto* const held = queues_.hold(peer.rank, frame)) {
      peer.ring.take(frame, held->data.data());
    } else {
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
  for (int source = 0; source < context_.size && !control_.broken(); ++source) {
    Peer* const peer = peer_of(source);
    if (peer == nullptr) progress_wire(source);
    std::optional<Frame> first;
    std::size_t count = 0;
    const auto add = [&](const Frame& frame) {
      if (frame.kind != FrameKind::whole) return;  // the send of an offer fails with the group
      if (!first) first = frame;
      ++count;
    };
    for (const auto& arrived : queues_.arrived())
      if (arrived.source == source) add(arrived.frame);
    if (peer != nullptr)
      for (Frame frame; peer->ring.peek(frame) && plausible(source, frame); peer->ring.drop(frame))
        add(frame);
    if (first)
      log(LogLevel::warn,
          "group \"{}\": {} message{} from rank {} to rank {} {} never received (tag {}, {} "
          "bytes{})",
          context_.group, count, count == 1 ? "" : "s", source, context_.rank,
          count == 1 ? "was" : "were", first->tag, first->total, count == 1 ? "" : ": the first");
  }
}

bool TransferEngine::fits(int source, const Frame& frame, const Transfer& recv) {
  const auto dtype = static_cast<DType>(frame.dtype);
  const View output(recv.data, recv.bytes / size_of(recv.dtype), recv.dtype);
  const std::string mismatch =
      message_mismatch(dtype, frame.total / size_of(dtype), source, context_.rank,
                       {output, source, recv.tag, recv.exact});
  if (mismatch.empty()) return true;
  control_.fail({.code = Code::mismatch,
                 .message = mismatch,
                 .rank = source,
                 .group = context_.group,
                 .op = "recv"});
  return false;
}

template <class Take>
void TransferEngine::accept(int source, const Frame& frame, Transfer& recv, Take take) {
  if (!fits(source, frame, recv)) {
    queues_.post(recv);  // fails with the group
    return;
  }
  const bool offer = frame.kind == FrameKind::offer;
  recv.source = source;
  recv.id = frame.id;
  recv.bytes = frame.total;
  Peer* const peer = peer_of(source);
  if (peer == nullptr) {
    wires_.at(source)->give_back(frame);
    if (offer) return wires_.at(source)->ask_for(recv);
  } else if (offer) {
    peer->reading.push_back(&recv);
  }
  take(offer ? static_cast<void*>(&recv.remote) : recv.data);
  if (!offer) recv.finish();
}

void TransferEngine::withdraw(Transfer& transfer) {
  const int rank = awaited(transfer);
  if (!transfer.is_send) queues_.remove(transfer);
  if (rank == kAnySource) {
    // In no other queue.
  } else if (Wire* const wire = wires_.at(rank)) {
    wire->withdraw(transfer);
    try {
      wires_.update(rank);
    } catch (const std::exception&) {  // no memory: it is watched for more than it wants
    }
  } else if (transfer.is_send) {
    peer_of(rank)->sends.withdraw(transfer);
  } else {
    std::erase(peer_of(rank)->reading, &transfer);
    std::erase(peer_of(rank)->receiving, &transfer);
  }
  if (shared_ == &transfer) {
    receiver_->withdraw(control_);
    receiver_.reset();
    shared_ = nullptr;
  }
  // A peer that reads what is written into this memory next must also see that the group is broken.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool TransferEngine::read_part(Peer& peer, Transfer& recv, Part part) {
  peer.readable =
      peer.readable && read_process(team_.lines(peer.place).identity.pid, recv.remote + part.first,
                                    recv.data + part.first, part.bytes) == 0;
  return peer.readable;
}

// Lets the sender write what this rank does not read first, unless another recv does so already or
// there is no core to spare.
void TransferEngine::share(const Peer& peer, Transfer& recv) {
  if (receiver_ || recv.moved != 0 || recv.bytes < kLeastShared || team_.oversubscribed()) return;
  RankLines& own = team_.lines(team_.rank());
  receiver_.emplace(own.message_share, peer.rank, recv.id, recv.data, recv.bytes);
  shared_ = &recv;
  team_.lines(peer.place).mailbox.ring_shared();
}

// One turn. If `recv` is not shared_ afterwards, the sender has nothing left to write.
bool TransferEngine::read_shared(Peer& peer, Transfer& recv) {
  if (const auto part = peer.readable ? receiver_->next() : std::nullopt) {
    read_part(peer, recv, *part);
    return true;
  }
  if (!peer.readable) receiver_->close();
  if (!receiver_->finished()) return false;
  const Part left = receiver_->refused();
  if (left.bytes == 0 || read_part(peer, recv, left)) recv.moved = recv.bytes;
  receiver_.reset();
  shared_ = nullptr;
  return true;
}

// One turn of reading what a peer has offered. If its memory cannot be read, for whatever reason,
// the offer is answered with a request to stream. A dead peer never streams, and its death breaks
// the group.
bool TransferEngine::read(Peer& peer) {
  Transfer& recv = *peer.reading.front();
  if (peer.readable) share(peer, recv);
  if (shared_ == &recv) {
    if (!read_shared(peer, recv)) return false;
    if (shared_ == &recv) return true;
  } else {
    const Part part{recv.moved, std::min(recv.bytes - recv.moved, kMessageReadBytes)};
    if (read_part(peer, recv, part)) recv.moved += part.bytes;
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
  if (control_.broken()) return false;
  peer.reading.pop_front();
  peer.ring.answer({recv.id, false});
  recv.finish();
  return true;
}

}}}  // namespace c10d::v0::native
