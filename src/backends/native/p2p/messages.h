// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "src/backends/native/collectives/queue.h"
#include "src/backends/native/p2p/ring.h"
#include "src/backends/native/team/team.h"
#include "src/base/mutex.h"
#include "src/sync/progress_thread.h"

namespace c10d { inline namespace v0 { namespace native {

// The point-to-point ops of one rank. Sends of a pair stay in order in its ring; recvs match them
// by (peer, tag) in the order of posting. A short message travels whole and its send ends at once.
// A longer one is offered: whoever has its recv reads it out of the sender's memory, where the
// kernel allows that, and a sender that waits meanwhile writes a part of it, one message of a
// receiver at a time; or else it is streamed through the ring. What arrives before its recv is
// held, within limits: then the ring stays full and the sender waits.
//
// Whoever waits for an op drives all of them. The progress thread does so only while nobody waits.
class Messages : public std::enable_shared_from_this<Messages> {
 public:
  explicit Messages(std::shared_ptr<Team> team);

  Work launch(const Call& call);
  // Waits until no async op is pending; false: the deadline came first.
  bool drain(Deadline deadline);
  // At the end of the group: a line in the log for each peer that sent what no recv took. Its send
  // has ended well long ago.
  void warn_of_unreceived();

 private:
  struct Message {
    bool is_send = false;
    bool done = false;
    int peer = 0;
    std::uint32_t tag = 0;
    DType dtype = DType::u8;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t moved = 0;
    std::uint32_t id = 0;      // once offered
    std::uint64_t remote = 0;  // of a recv that reads: where the sender has the data
    int source = -1;           // of a recv: who sent what it matched
  };
  // A send or a recv. A blocking one lives on its caller's stack.
  struct Transfer : Message {
    Transfer* before = nullptr;  // of posted recvs
    Transfer* after = nullptr;
    std::optional<PendingCall> async;  // none: blocking, or not pending yet
    std::size_t place = 0;             // of an async one, in async_
  };
  // Recvs without a message, in the order of posting.
  class Posted {
   public:
    bool empty() const noexcept { return first_ == nullptr; }
    void add(Transfer& recv) noexcept;
    void remove(Transfer& recv) noexcept;  // nothing if it is not in
    Transfer* find(int source, const Frame& frame) const noexcept;

   private:
    Transfer* first_ = nullptr;
    Transfer* last_ = nullptr;
  };
  struct Peer {
    Sender out;
    Receiver in;
    bool readable;                     // its memory, so far
    std::deque<Transfer*> queued;      // sends that the peer knows nothing of yet
    std::vector<Transfer*> offered;    // sends without an answer
    std::deque<Transfer*> streaming;   // sends that are to stream
    std::deque<Transfer*> reading;     // recvs of offers, from the sender's memory
    std::vector<Transfer*> receiving;  // recvs of offers, through the ring
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

  Work run(const Call& call);
  Work start(const Call& call);
  WaitResult await(const Transfer& transfer, const Call& call);
  bool drive();
  Poll step();
  void expire(Deadline now) C10D_REQUIRES(mutex_);

  Peer& peer_of(int rank) C10D_REQUIRES(mutex_) { return peers_[static_cast<std::size_t>(rank)]; }
  void post(Transfer& transfer) C10D_REQUIRES(mutex_);
  bool take_arrived(Transfer& recv) C10D_REQUIRES(mutex_);
  bool progress_async() C10D_REQUIRES(mutex_);  // outside of any call: throws nothing
  bool progress() C10D_REQUIRES(mutex_);
  bool progress(int peer) C10D_REQUIRES(mutex_);
  bool transmit(Peer& peer) C10D_REQUIRES(mutex_);
  bool take_answers(Peer& peer) C10D_REQUIRES(mutex_);
  bool stream(Peer& peer, std::size_t& budget) C10D_REQUIRES(mutex_);
  bool begin(Peer& peer, Transfer& send) C10D_REQUIRES(mutex_);
  bool read(int peer) C10D_REQUIRES(mutex_);
  bool read_part(int peer, Transfer& recv, Part part) C10D_REQUIRES(mutex_);
  void invite(int peer, Transfer& recv) C10D_REQUIRES(mutex_);
  bool read_shared(int peer, Transfer& recv) C10D_REQUIRES(mutex_);
  bool help(int peer) C10D_REQUIRES(mutex_);
  bool receive(int peer) C10D_REQUIRES(mutex_);
  bool receive_piece(Peer& peer, const Frame& frame) C10D_REQUIRES(mutex_);
  bool hold(int source, Peer& peer, const Frame& frame) C10D_REQUIRES(mutex_);
  bool plausible(int source, const Frame& frame);
  bool fits(int source, const Frame& frame, const Transfer& recv);
  // Matches `recv` with a message: takes its data, or begins to answer its offer.
  void accept(int source, Peer& peer, const Frame& frame, Transfer& recv, const Arrived* held)
      C10D_REQUIRES(mutex_);
  void finish(Transfer& transfer) C10D_REQUIRES(mutex_);
  void withdraw(Transfer& transfer) C10D_REQUIRES(mutex_);
  std::unique_ptr<Transfer> take_spare() C10D_REQUIRES(mutex_);
  std::unique_ptr<Transfer> release(Transfer& transfer) C10D_REQUIRES(mutex_);
  void keep_spare(std::unique_ptr<Transfer> transfer) C10D_REQUIRES(mutex_);
  void fail_if_broken() C10D_REQUIRES(mutex_);  // the async ones

  const std::shared_ptr<Team> team_;
  std::atomic<int> waiting_{0};
  std::atomic<Deadline::rep> earliest_{Deadline::max().time_since_epoch().count()};
  std::shared_ptr<const std::function<bool()>> drive_;
  Mutex mutex_;
  CondVar drained_;
  std::deque<Peer> peers_ C10D_GUARDED_BY(mutex_);
  Posted posted_ C10D_GUARDED_BY(mutex_);
  std::optional<Taker> taker_ C10D_GUARDED_BY(mutex_);  // of the recv that shares its reading
  Transfer* shared_ C10D_GUARDED_BY(mutex_) = nullptr;  // that one
  std::list<Arrived> arrived_ C10D_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Transfer>> async_ C10D_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Transfer>> spare_ C10D_GUARDED_BY(mutex_);
  bool stepping_ C10D_GUARDED_BY(mutex_) = false;
  bool draining_ C10D_GUARDED_BY(mutex_) = false;
  int idle_steps_ C10D_GUARDED_BY(mutex_) = 0;
};

}}}  // namespace c10d::v0::native
