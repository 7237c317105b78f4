// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace c10d::inline v0::native {
namespace {

// What one peer may have lying here without a recv.
constexpr std::size_t kHeldBytes = std::size_t{4} << 20;
constexpr std::size_t kHeldMessages = 4096;

bool matches(int peer, std::uint32_t tag, int source, const Frame& frame) {
  return (peer == source || peer == kAnySource) && tag == frame.tag;
}

}  // namespace

Messages::Messages(std::shared_ptr<Team> team) : team_(std::move(team)) {
  for (int peer = 0; peer < team_->size(); ++peer)
    peers_.push_back({.out = Sender(*team_, peer), .in = Receiver(*team_, peer)});
}

Work Messages::launch(const Call& call) {
  try {
    return call.async ? start(call) : run(call);
  } catch (const std::exception& error) {
    return Work::failed(*team_->control().fail({.code = Code::out_of_resources,
                                                .message = error.what(),
                                                .rank = team_->rank(),
                                                .group = team_->context().group,
                                                .op = std::string(to_string(kind_of(call.op))),
                                                .sequence = call.sequence}));
  }
}

void Messages::fill(Transfer& transfer, const Op& op) {
  if (const auto* send = std::get_if<Send>(&op)) {
    transfer.is_send = true;
    transfer.peer = send->peer;
    transfer.tag = send->tag;
    transfer.dtype = send->input.dtype;
    // Only read; the same struct serves both directions.
    transfer.data = static_cast<std::byte*>(const_cast<void*>(send->input.data));
    transfer.bytes = send->input.bytes();
  } else {
    const auto& recv = std::get<Recv>(op);
    transfer.peer = recv.peer;
    transfer.tag = recv.tag;
    transfer.dtype = recv.output.dtype;
    transfer.data = static_cast<std::byte*>(recv.output.data);
    transfer.bytes = recv.output.bytes();
  }
}

Work Messages::run(const Call& call) {
  Transfer transfer;
  fill(transfer, call.op);
  // However this ends, no queue may hold on to the stack.
  const auto leave = [this](Transfer* left) {
    MutexLock lock(mutex_);
    if (!left->done) withdraw(*left);
  };
  const std::unique_ptr<Transfer, decltype(leave)> guard(&transfer, leave);
  {
    MutexLock lock(mutex_);
    post(transfer);
  }
  Control& control = team_->control();
  const WaitResult result = wait_until({team_->policy(), control, call.deadline, nullptr},
                                       team_->lines(team_->rank()).mailbox, [&] {
                                         MutexLock lock(mutex_);
                                         if (!transfer.done) progress();
                                         return transfer.done;
                                       });
  if (result == WaitResult::ready)
    return transfer.is_send ? Work() : Work::received_from(transfer.source);
  const auto failure =
      result == WaitResult::broken
          ? control.failure()
          : control.fail(control.timed_out(
                call, transfer.is_send ? "waiting for the recv" : "waiting for the send"));
  return Work::failed(*failure);
}

Work Messages::start(const Call& call) {
  auto transfer = std::make_unique<Transfer>();
  transfer->async = std::make_unique<PendingCall>(call);
  fill(*transfer, call.op);
  Transfer& posted = *transfer;
  const Work work = transfer->async->source.work();
  bool must_step = false;
  {
    MutexLock lock(mutex_);
    async_.push_back(std::move(transfer));
    posted.self = std::prev(async_.end());
    post(posted);
    progress();
    must_step = !async_.empty() && !stepping_;
    stepping_ |= must_step;
  }
  if (must_step) add_progress([self = shared_from_this()] { return self->step(); });
  return work;
}

// In the progress thread, as long as an async op is pending.
Poll Messages::step() {
  MutexLock lock(mutex_);
  bool moved = false;
  try {
    moved = step_async();
  } catch (const std::exception& error) {
    fail_async(*team_->control().fail({.code = Code::out_of_resources,
                                       .message = error.what(),
                                       .rank = team_->rank(),
                                       .group = team_->context().group}));
  }
  if (!async_.empty()) return moved ? Poll::busy : Poll::idle;
  stepping_ = false;
  return Poll::done;
}

bool Messages::step_async() {
  Control& control = team_->control();
  const bool moved = progress();
  if (!moved) {
    const auto now = std::chrono::steady_clock::now();
    for (const auto& transfer : async_) {
      const Call& call = transfer->async->owned.call();
      if (now < call.deadline) continue;
      control.fail(control.timed_out(
          call, transfer->is_send ? "waiting for the recv" : "waiting for the send"));
      break;
    }
  }
  if (control.broken()) fail_async(*control.failure());
  return moved;
}

void Messages::post(Transfer& transfer) {
  if (transfer.is_send) {
    peers_[static_cast<std::size_t>(transfer.peer)].queued.push_back(&transfer);
    return;
  }
  for (auto it = arrived_.begin(); it != arrived_.end(); ++it) {
    if (!matches(transfer.peer, transfer.tag, it->source, it->frame)) continue;
    Peer& peer = peers_[static_cast<std::size_t>(it->source)];
    peer.held_bytes -= it->data.size();
    --peer.held;
    const Arrived arrived = std::move(*it);
    arrived_.erase(it);
    accept(arrived.source, peer, arrived.frame, transfer, &arrived);
    return;
  }
  posted_.push_back(&transfer);
}

bool Messages::progress() {
  bool moved = false;
  for (int peer = 0; peer < team_->size(); ++peer) {
    moved |= transmit(peer);
    moved |= receive(peer);
  }
  return moved;
}

bool Messages::transmit(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.queued.empty() && peer.offered.empty() && peer.streaming.empty()) return false;
  std::uint32_t id = 0;
  while (peer.out.take_grant(id)) {
    const auto offer = peer.offered.find(id);
    if (offer == peer.offered.end()) continue;
    peer.streaming.push_back(offer->second);
    peer.offered.erase(offer);
  }
  // A turn ends after a ring's worth of data, however fast the peer empties it.
  std::size_t budget = team_->layout().ring_bytes();
  bool moved = false;
  while (!peer.streaming.empty() && stream(peer, budget)) moved = true;
  while (!peer.queued.empty() && begin_sends(peer)) moved = true;
  return moved;
}

bool Messages::stream(Peer& peer, std::size_t& budget) {
  Transfer& send = *peer.streaming.front();
  const std::size_t length = std::min(send.bytes - send.moved, peer.out.whole_limit());
  if (length > budget || peer.out.room() < length) return false;
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

bool Messages::begin_sends(Peer& peer) {
  Transfer& send = *peer.queued.front();
  const bool whole = send.bytes <= peer.out.whole_limit();
  const std::size_t length = whole ? send.bytes : 0;
  if (peer.out.room() < length + sizeof(Frame) || peer.offered.size() >= kGrants) return false;
  peer.queued.pop_front();
  send.id = peer.next_id++;
  peer.out.put({whole ? FrameKind::whole : FrameKind::offer, send.tag, send.id,
                static_cast<std::uint32_t>(send.dtype), send.bytes, length},
               send.data);
  if (whole)
    finish(send);
  else
    peer.offered.emplace(send.id, &send);
  return true;
}

bool Messages::plausible(int source, const Frame& frame) {
  const std::size_t ring = team_->layout().ring_bytes();
  if (frame.kind >= FrameKind::whole && frame.kind <= FrameKind::piece && frame.length <= ring &&
      frame.length <= frame.total && frame.dtype < kDTypeCount &&
      (frame.kind != FrameKind::whole || frame.length == frame.total))
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
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  bool moved = false;
  std::size_t budget = team_->layout().ring_bytes();
  Frame frame;
  while (budget != 0 && !team_->control().broken() && peer.in.peek(frame)) {
    if (!plausible(rank, frame)) return false;
    if (frame.kind == FrameKind::piece) {
      if (!receive_piece(peer, frame)) return moved;
    } else {
      const auto recv = std::find_if(posted_.begin(), posted_.end(), [&](const Transfer* posted) {
        return matches(posted->peer, posted->tag, rank, frame);
      });
      if (recv == posted_.end()) {
        if (!hold(rank, peer, frame)) return moved;
      } else {
        Transfer& transfer = **recv;
        posted_.erase(recv);
        accept(rank, peer, frame, transfer, nullptr);
      }
    }
    moved = true;
    budget -= std::min(budget, static_cast<std::size_t>(frame.length) + sizeof(Frame));
  }
  return moved;
}

bool Messages::receive_piece(Peer& peer, const Frame& frame) {
  const auto recv = peer.receiving.find(frame.id);
  if (recv == peer.receiving.end()) return false;  // withdrawn: the group is broken
  Transfer& transfer = *recv->second;
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
    posted_.push_back(&recv);  // fails with the group
    return;
  }
  recv.source = source;
  if (frame.kind == FrameKind::offer) {
    if (held == nullptr) peer.in.take(frame, nullptr);
    peer.receiving.emplace(frame.id, &recv);
    peer.in.grant(frame.id);
    return;
  }
  if (held == nullptr)
    peer.in.take(frame, recv.data);
  else
    std::copy(held->data.begin(), held->data.end(), recv.data);
  finish(recv);
}

void Messages::finish(Transfer& transfer) {
  transfer.done = true;
  if (!transfer.async) return;
  const auto owned = std::move(*transfer.self);
  async_.erase(owned->self);
  if (async_.empty()) drained_.notify_all();
  owned->async->source.complete(owned->source);
}

// From every queue. The group is broken: nobody gets half a message and goes on.
void Messages::withdraw(Transfer& transfer) {
  posted_.remove(&transfer);
  for (Peer& peer : peers_) {
    std::erase(peer.queued, &transfer);
    std::erase(peer.streaming, &transfer);
    std::erase_if(peer.offered, [&](const auto& entry) { return entry.second == &transfer; });
    std::erase_if(peer.receiving, [&](const auto& entry) { return entry.second == &transfer; });
  }
}

void Messages::fail_async(const Failure& failure) {
  while (!async_.empty()) {
    const auto transfer = std::move(async_.front());
    async_.pop_front();
    withdraw(*transfer);
    transfer->async->source.fail(failure);
  }
  drained_.notify_all();
}

bool Messages::drain(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!async_.empty())
    if (drained_.wait_until(mutex_, deadline) == std::cv_status::timeout) return async_.empty();
  return true;
}

}  // namespace c10d::inline v0::native
