// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>

#include "c10d/backend.h"
#include "src/backends/mpi/channel.h"
#include "src/backends/mpi/message.h"
#include "src/backends/mpi/plan.h"
#include "src/core/owned_call.h"

namespace c10d::inline v0 {

// The ops of one group that are not done when launch() returns. MPI moves only while it is called,
// so the process's progress thread polls, and so does every wait(). Collectives go one at a time:
// agreed on, then run.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  using FailurePtr = std::shared_ptr<const Failure>;

  Engine(const BackendContext& context, Channel& channel);
  // Nothing of MPI is in flight afterwards, or it is given up for good.
  ~Engine();

  Work add(const Call& call);
  Work add(const Call& call, std::unique_ptr<Message> message);
  // Whether all collectives are done; works on that until the deadline.
  bool finish_collectives(Deadline deadline);
  bool finish_all(Deadline deadline);

  // For a call in this thread: to its end, the deadline, or the failure of the group.
  FailurePtr finish(const Call& call, Plan& plan);
  FailurePtr finish(const Call& call, std::unique_ptr<Message>& message);
  // What a message that ended well, or by an exception, means for the group.
  FailurePtr failure_of(const Call& call, const Message& message);
  FailurePtr library_error(const Call& call, const char* what);

  bool idle() const noexcept { return collectives_left_.load(std::memory_order_acquire) == 0; }

 private:
  struct Collective {
    explicit Collective(const Call& call) : owned(call) {}
    OwnedCall owned;
    WorkSource source;
    bool announced = false;
    std::unique_ptr<Plan> plan;  // once agreed
  };
  struct Transfer {
    Transfer(const Call& call, std::unique_ptr<Message> message_)
        : owned(call), message(std::move(message_)) {}
    OwnedCall owned;
    std::unique_ptr<Message> message;
    WorkSource source;
  };

  void watch(const WorkSource& source);
  bool poll();  // true: something moved
  bool poll_collective();
  bool poll_transfers();
  // True when it is over, in `failure` how.
  bool step(Collective& collective, FailurePtr& failure);
  bool is_over(const Call& call, FailurePtr& failure);
  bool in_use();
  FailurePtr too_many(const Call& call);

  BackendContext context_;
  Channel& channel_;
  const bool crowded_;  // more ranks than CPUs here: a wait gives the CPU away
  std::mutex mutex_;
  std::deque<std::unique_ptr<Collective>> collectives_;
  std::list<std::unique_ptr<Transfer>> transfers_;
  std::atomic<std::size_t> collectives_left_ = 0;
  bool watched_ = false;  // by the progress thread
};

}  // namespace c10d::inline v0
