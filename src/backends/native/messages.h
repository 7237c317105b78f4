// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "src/backends/native/channel.h"
#include "src/backends/native/queue.h"
#include "src/backends/native/team.h"
#include "src/core/mutex.h"
#include "src/core/progress.h"

namespace c10d::inline v0::native {

// The point-to-point ops of one rank. Sends of a pair stay in order in its ring; recvs match them
// by (peer, tag) in the order of posting. A message that fits into a quarter of the ring travels
// whole and its send ends at once; a longer one is offered and streamed once it has its recv. What
// arrives before its recv is held, within limits: then the ring stays full and the sender waits.
class Messages : public std::enable_shared_from_this<Messages> {
 public:
  explicit Messages(std::shared_ptr<Team> team);

  Work launch(const Call& call);
  // Waits until no async op is pending; false: the deadline came first.
  bool drain(Deadline deadline);

 private:
  // A send or a recv. A blocking one lives on its caller's stack.
  struct Transfer {
    bool is_send = false;
    int peer = 0;
    std::uint32_t tag = 0;
    DType dtype = DType::u8;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t moved = 0;
    std::uint32_t id = 0;  // of an offered send
    int source = -1;       // of a recv: who sent what it matched
    bool done = false;
    std::unique_ptr<PendingCall> async;                   // null: blocking
    std::list<std::unique_ptr<Transfer>>::iterator self;  // of an async one
  };
  struct Peer {
    Sender out;
    Receiver in;
    std::deque<Transfer*> queued;                  // sends that the peer knows nothing of yet
    std::map<std::uint32_t, Transfer*> offered;    // sends that wait for their grant
    std::deque<Transfer*> streaming;               // sends that have it
    std::map<std::uint32_t, Transfer*> receiving;  // recvs that were granted, by the sender's id
    std::uint32_t next_id = 0;
    std::size_t held_bytes = 0;
    std::size_t held = 0;
  };
  // A message without a recv.
  struct Arrived {
    int source;
    Frame frame;
    std::vector<std::byte> data;
  };

  static void fill(Transfer& transfer, const Op& op);
  Work run(const Call& call);
  Work start(const Call& call);
  Poll step();
  bool step_async() C10D_REQUIRES(mutex_);

  void post(Transfer& transfer) C10D_REQUIRES(mutex_);
  bool progress() C10D_REQUIRES(mutex_);
  bool transmit(int peer) C10D_REQUIRES(mutex_);
  bool stream(Peer& peer, std::size_t& budget) C10D_REQUIRES(mutex_);
  bool begin_sends(Peer& peer) C10D_REQUIRES(mutex_);
  bool receive(int peer) C10D_REQUIRES(mutex_);
  bool receive_piece(Peer& peer, const Frame& frame) C10D_REQUIRES(mutex_);
  bool hold(int source, Peer& peer, const Frame& frame) C10D_REQUIRES(mutex_);
  bool plausible(int source, const Frame& frame);
  bool fits(int source, const Frame& frame, const Transfer& recv);
  // Matches `recv` with a message: takes its data, or grants its offer.
  void accept(int source, Peer& peer, const Frame& frame, Transfer& recv, const Arrived* held)
      C10D_REQUIRES(mutex_);
  void finish(Transfer& transfer) C10D_REQUIRES(mutex_);
  void withdraw(Transfer& transfer) C10D_REQUIRES(mutex_);
  void fail_async(const Failure& failure) C10D_REQUIRES(mutex_);

  const std::shared_ptr<Team> team_;
  Mutex mutex_;
  CondVar drained_;
  std::deque<Peer> peers_ C10D_GUARDED_BY(mutex_);
  std::list<Transfer*> posted_ C10D_GUARDED_BY(mutex_);
  std::list<Arrived> arrived_ C10D_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<Transfer>> async_ C10D_GUARDED_BY(mutex_);
  bool stepping_ C10D_GUARDED_BY(mutex_) = false;
};

}  // namespace c10d::inline v0::native
