// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/backends/native/collectives/queue.h"
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
  explicit Messages(std::shared_ptr<Team> team);

  Work launch(const Call& call);
  std::optional<Received> probe(int peer, std::uint32_t tag);
  // Waits until no async op is pending; false: the deadline came first.
  bool drain(Deadline deadline);
  void warn_of_unreceived();

 private:
  struct AsyncTransfer : Transfer {
    std::optional<PendingCall> call;  // none while spare
    std::size_t place = 0;            // in pending_
  };

  Work run(const Call& call);
  Work start(const Call& call);
  WaitResult await(const Transfer& transfer, const Call& call);
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
  std::atomic<int> waiting_{0};
  std::atomic<Deadline::rep> earliest_{Deadline::max().time_since_epoch().count()};
  Mutex mutex_;
  std::shared_ptr<const std::function<bool()>> drive_ C10D_GUARDED_BY(mutex_);
  CondVar drained_;
  const std::function<void(Transfer&)> on_done_;
  TransferEngine engine_ C10D_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<AsyncTransfer>> pending_ C10D_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<AsyncTransfer>> spare_ C10D_GUARDED_BY(mutex_);
  bool stepping_ C10D_GUARDED_BY(mutex_) = false;
  bool draining_ C10D_GUARDED_BY(mutex_) = false;
  int idle_steps_ C10D_GUARDED_BY(mutex_) = 0;
};

}}}  // namespace c10d::v0::native
