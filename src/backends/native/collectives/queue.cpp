// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/queue.h"

#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();  // calls

}  // namespace

Work Queue::launch(const Call& call) {
  if (!call.async && pending_.load(std::memory_order_acquire) == 0) {
    const auto failure = runner_->run(call);
    return failure ? Work::failed(*failure) : Work();
  }
  Work work = enqueue(call);
  if (call.async) return work;
  try {
    work.wait();
  } catch (const DistError&) {  // it is in the Work
  }
  return work;
}

Work Queue::enqueue(const Call& call) {
  auto pending = std::make_unique<PendingCall>(call);
  const WorkSource source = pending->source;
  {
    MutexLock lock(mutex_);
    source.set_runner([weak = weak_from_this(), number = done_ + calls_.size() + 1] {
      if (const auto self = weak.lock()) self->run_pending(number);
    });
    calls_.push_back(std::move(pending));
    pending_.fetch_add(1, std::memory_order_relaxed);
  }
  leave_to_fiber();
  return source.work();
}

void Queue::run_pending(std::uint64_t until) {
  const PendingCall* next = nullptr;
  {
    MutexLock lock(mutex_);
    if (running_ || calls_.empty() || done_ >= until) return;
    running_ = true;
    next = calls_.front().get();
  }
  bool more = false;
  do {
    const auto failure =
        control().broken() ? control().failure() : runner_->run(next->owned.call());
    std::unique_ptr<PendingCall> done;
    {
      MutexLock lock(mutex_);
      done = std::move(calls_.front());
      calls_.pop_front();
      ++done_;
      // Before the Work is done: a caller that waited for it may launch a blocking call at once.
      pending_.fetch_sub(1, std::memory_order_release);
      more = !calls_.empty();
      if (!more) drained_.notify_all();
      running_ = more && done_ < until;
      next = running_ ? calls_.front().get() : nullptr;
    }
    if (failure)
      done->source.fail(*failure);
    else
      done->source.complete();
  } while (next != nullptr);
  if (more) leave_to_fiber();
}

// Without memory for a fiber the group breaks, and all calls fail here.
void Queue::leave_to_fiber() {
  {
    MutexLock lock(mutex_);
    if (running_ || calls_.empty() || std::exchange(fiber_due_, true)) return;
  }
  try {
    run_fiber([self = shared_from_this()] {
      {
        MutexLock lock(self->mutex_);
        self->fiber_due_ = false;
      }
      self->run_pending(kAll);
    });
  } catch (const std::exception& error) {
    const BackendContext& context = runner_->context();
    control().fail(failure_in(context, Code::out_of_resources,
                              std::string("an async op could not start: ") + error.what(),
                              context.rank));
    {
      MutexLock lock(mutex_);
      fiber_due_ = false;
    }
    run_pending(kAll);
  }
}

bool Queue::drain(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!calls_.empty())
    if (drained_.wait_until(mutex_, deadline) == std::cv_status::timeout) return calls_.empty();
  return true;
}

}}}  // namespace c10d::v0::native
