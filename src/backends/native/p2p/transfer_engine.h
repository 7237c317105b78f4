// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "src/backends/native/p2p/matching_queues.h"
#include "src/backends/native/p2p/send_queue.h"
#include "src/backends/native/p2p/wires.h"

namespace c10d { inline namespace v0 { namespace native {

// Moves the bytes of one rank's transfers. Has no mutex, and knows neither calls nor deadlines: one
// thread at a time uses it, and messages move only in calls of post() and progress(). Ranks are
// those of the group.
//
// On one host, sends of a pair stay in order in its ring. A short message travels whole, and its
// send ends at once. A longer one is offered. The receiver that has its recv reads it from the
// sender's memory; where the kernel does not allow that, it is streamed through the ring. A sender
// that waits while its message is read writes a part of it, for one message of a receiver at a
// time. A message without a recv is held, within limits; past them it stays in the ring and the
// sender waits. Between hosts messages go through wires, and meet the same recvs.
//
// An accepted recv of an offer of this host is in `reading` or in `receiving` of its source until
// it is done.
class TransferEngine {
 public:
  // `context` is that of the group, and stays.
  TransferEngine(Team& team, const BackendContext& context, const std::vector<int>& places,
                 std::vector<Mesh::Connection> connections);

  // Begins a transfer and may end it. It stays with the engine until it is done or withdrawn.
  void post(Transfer& transfer);
  // One turn, of all peers or of one; true: something moved.
  bool progress();
  bool progress(int rank);
  // After a turn: the first message that a recv would get now.
  std::optional<Received> probe(int source, std::uint32_t tag);
  // Takes a transfer that is not done out of all queues. Only for a broken group: no rank may
  // continue with half a message.
  void withdraw(Transfer& transfer);
  // At the end of the group: logs a line for each peer that sent what no recv took. Those sends
  // have already succeeded.
  void warn_of_unreceived();

  const Wires& wires() const noexcept { return wires_; }
  void look_after_wires() { wires_.look_after(); }
  // Whether a transfer that is not done waits for a rank whose connection is lost: that rank, and
  // what became of the connection.
  struct Loss {
    int rank;
    std::string why;
  };
  std::optional<Loss> loss(const Transfer& transfer) const;

 private:
  // On this host.
  struct Peer {
    int rank, place;
    SendQueue sends;
    Receiver ring;
    bool readable;                     // its memory, so far
    std::deque<Transfer*> reading;     // recvs of offers, from the sender's memory
    std::vector<Transfer*> receiving;  // recvs of offers, through the ring
  };

  // Null: on another host.
  Peer* peer_of(int rank) const noexcept { return by_rank_[static_cast<std::size_t>(rank)]; }
  bool progress(Peer& peer);
  bool progress_wire(int rank);
  bool flush(int rank);
  static int awaited(const Transfer& transfer) noexcept;
  bool receive(Peer& peer);
  bool receive_piece(Peer& peer, const Frame& frame);
  void deliver(int source, const Frame& frame, const std::byte* data);
  // Matches `recv` with a message: takes its data, or begins to read what it offers. take(to)
  // copies what the frame has.
  template <class Take>
  void accept(int source, const Frame& frame, Transfer& recv, Take take);
  bool plausible(int source, const Frame& frame);
  bool fits(int source, const Frame& frame, const Transfer& recv);
  bool read(Peer& peer);
  bool read_part(Peer& peer, Transfer& recv, Part part);
  void share(const Peer& peer, Transfer& recv);
  bool read_shared(Peer& peer, Transfer& recv);

  Team& team_;
  const BackendContext& context_;
  Control& control_;
  std::deque<Peer> peers_;
  std::vector<Peer*> by_rank_;
  Wires wires_;
  MatchingQueues queues_;
  std::optional<CopyReceiver> receiver_;  // of the recv that shares its reading with the sender
  Transfer* shared_ = nullptr;            // that recv
};

}}}  // namespace c10d::v0::native
