// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/backends/native/collectives/queue.h"
#include "src/backends/native/p2p/routes.h"
#include "src/backends/native/p2p/transfer_engine.h"
#include "src/base/mutex.h"
#include "src/sync/progress_thread.h"

namespace c10d { inline namespace v0 { namespace native {

// The point-to-point ops of one rank: takes calls, waits, keeps deadlines, reports errors.
//
// mutex_ guards the engine and everything about async ops. A thread that waits for one op drives
// all of them; the progress thread does so only while no thread waits. While an async op is
// in pending_, a thread that waits or the progress thread's step() will look at it again.
class Messages : public std::enable_shared_from_this<Messages> {
 public:
  // Of a group on one host.
  explicit Messages(const std::shared_ptr<Team>& team);
  // Of a group on several: `team` are its ranks on this one. Throws out_of_resources.
  Messages(std::shared_ptr<Team> team, Routes routes);

  Work launch(const Call& call);
  std::optional<Received> probe(int peer, std::uint32_t tag);
  // Waits until no async op is pending, and other hosts have what was sent: so the connections may
  // end. False: the deadline came first.
  bool drain(Deadline deadline);
  void warn_of_unreceived();
  // See Wires. From any thread.
  void look_after();

 private:
  struct AsyncTransfer : Transfer {
    std::optional<PendingCall> call;  // none while spare
    std::size_t place = 0;            // in pending_
  };

  Work run(const Call& call);
  Work start(const Call& call);
  WaitResult await(const Transfer& transfer, const Call& call);
  // Where the next turn of a wait may find something.
  struct Places {
    bool memory;   // in the rings of this host
    bool sockets;  // on the wires to others
  };
  // Of a group on several hosts.
  Places places_of(int peer) const noexcept;
  // For a thread that waits: it drives the async ops, too.
  Places places_of_pending();
  // Waits as wait_until() does, and looks where it must. `ready(moved)` may set `moved`. At sockets
  // it spins for a moment since `idle_since`: none is now.
  template <class Ready>
  WaitResult wait_at(Places places, const WaitPolicy& policy, Deadline deadline, Ready&& ready,
                     Deadline idle_since = {});
  Failure link_lost(const Call& call, const TransferEngine::Loss& loss) const;
  // Of an async op that waits for a rank whose connection is lost.
  std::optional<Failure> loss_of_pending() const C10D_REQUIRES(mutex_);
  bool has_work() const C10D_REQUIRES(mutex_);  // for the progress thread
  void send_the_rest();
  bool is_acknowledged();
  void count(const Transfer& transfer, int by) noexcept C10D_REQUIRES(mutex_);
  // In wait() of any async op: some progress, or a turn without.
  bool drive();
  // In the progress thread, as long as an async op is pending and a little longer.
  Poll step();
  void expire(Deadline now) C10D_REQUIRES(mutex_);
  bool progress_async() C10D_REQUIRES(mutex_);  // outside of any call: throws nothing
  void complete(AsyncTransfer& transfer) C10D_REQUIRES(mutex_);
  void fail_if_broken() C10D_REQUIRES(mutex_);  // the async ones
  std::unique_ptr<AsyncTransfer> take_spare() C10D_REQUIRES(mutex_);
  void keep_spare(std::unique_ptr<AsyncTransfer> transfer) C10D_REQUIRES(mutex_);
  // Takes an async transfer out of pending_.
  std::unique_ptr<AsyncTransfer> release(AsyncTransfer& transfer) C10D_REQUIRES(mutex_);

  const std::shared_ptr<Team> team_;
  const BackendContext context_;  // of the group
  Control& control_;
  std::atomic<int> waiting_{0};
  std::atomic<Deadline::rep> earliest_{Deadline::max().time_since_epoch().count()};
  // Of the threads that wait for async ops: their last turn, and since when none has moved.
  std::atomic<Deadline> last_drive_{}, idle_since_{};
  Mutex mutex_;
  std::shared_ptr<const std::function<bool()>> drive_ C10D_GUARDED_BY(mutex_);
  CondVar drained_;
  const std::function<void(Transfer&)> on_done_;
  TransferEngine engine_ C10D_GUARDED_BY(mutex_);
  const Wires& wires_;  // the engine's: without mutex_, only what never changes, and sleep()
  std::vector<std::unique_ptr<AsyncTransfer>> pending_ C10D_GUARDED_BY(mutex_);
  // Of them, those that may end by the rings of this host, and by the wires to others.
  int pending_here_ C10D_GUARDED_BY(mutex_) = 0;
  int pending_elsewhere_ C10D_GUARDED_BY(mutex_) = 0;
  // By then the reason of a loss is known, or never.
  std::optional<Deadline> reason_by_ C10D_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<AsyncTransfer>> spare_ C10D_GUARDED_BY(mutex_);
  bool stepping_ C10D_GUARDED_BY(mutex_) = false;
  bool draining_ C10D_GUARDED_BY(mutex_) = false;
  int idle_steps_ C10D_GUARDED_BY(mutex_) = 0;
};

}}}  // namespace c10d::v0::native
