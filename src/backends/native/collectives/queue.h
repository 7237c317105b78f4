// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "c10d/spi/backend.h"
#include "c10d/spi/work_source.h"
#include "src/backends/common/owned_call.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 { namespace native {

// An async call and the other end of its Work.
struct PendingCall {
  explicit PendingCall(const Call& from) : owned(from) {}
  OwnedCall owned;
  WorkSource source;
};

// The collectives of a group in issue order. A blocking one runs in the caller when none is
// pending. The others run one by one: in a fiber of the progress thread, or in a thread that waits
// for one of them before the progress thread has started it.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  // What runs a collective from beginning to end; null: it went well.
  class Runner {
   public:
    virtual ~Runner() = default;
    virtual const BackendContext& context() const noexcept = 0;
    virtual std::shared_ptr<const Failure> run(const Call& call) noexcept = 0;
  };
  explicit Queue(std::shared_ptr<Runner> runner) : runner_(std::move(runner)) {}

  Work launch(const Call& call);
  // Waits until none is pending; false: the deadline came first.
  bool drain(Deadline deadline);

 private:
  Work enqueue(const Call& call);
  // Runs calls until the first `until` of all are done, unless another one runs them.
  void run_pending(std::uint64_t until);
  // Starts a fiber that runs the pending calls, unless a thread runs them or is about to.
  void leave_to_fiber();

  Control& control() const noexcept { return *runner_->context().control; }

  const std::shared_ptr<Runner> runner_;
  std::atomic<std::size_t> pending_{0};
  Mutex mutex_;
  CondVar drained_;
  std::deque<std::unique_ptr<PendingCall>> calls_ C10D_GUARDED_BY(mutex_);
  std::uint64_t done_ C10D_GUARDED_BY(mutex_) = 0;  // calls that ever were in calls_ and are done
  // While a call is pending, one of them is set, or a thread is about to set one.
  bool running_ C10D_GUARDED_BY(mutex_) = false;    // a thread runs calls
  bool fiber_due_ C10D_GUARDED_BY(mutex_) = false;  // a fiber is about to look for some
};

// Runs them by execute(group, call), which is found beside Group.
template <class Group>
std::shared_ptr<Queue::Runner> runner_of(std::shared_ptr<Group> group) {
  class Runner final : public Queue::Runner {
   public:
    explicit Runner(std::shared_ptr<Group> of) : group_(std::move(of)) {}
    const BackendContext& context() const noexcept override { return group_->context(); }
    std::shared_ptr<const Failure> run(const Call& call) noexcept override {
      return execute(*group_, call);
    }

   private:
    const std::shared_ptr<Group> group_;
  };
  return std::make_shared<Runner>(std::move(group));
}

}}}  // namespace c10d::v0::native
