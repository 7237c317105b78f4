// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/p2p.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/backends/mpi/runtime.h"
#include "src/base/host.h"
#include "src/sync/progress_thread.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kMaxPending = 4096;

bool has_more_ranks_than_cpus(const BackendContext& context) {
  return std::count_if(context.members.begin(), context.members.end(),
                       [](const Member& member) { return member.same_host; }) > allowed_cpus();
}

}  // namespace

void give_up(std::unique_ptr<Schedule> schedule) {
  if (schedule->in_progress()) keep_for_good(std::move(schedule));
}

void give_up(std::unique_ptr<Message> message) {
  message->cancel();
  if (message->in_progress()) keep_for_good(std::move(message));
}

Transfers::Transfers(const BackendContext& context)
    : context_(context), oversubscribed_(has_more_ranks_than_cpus(context)) {}

void Transfers::give_up_all() {
  std::list<std::unique_ptr<Transfer>> left;
  {
    MutexLock lock(mutex_);
    left.swap(transfers_);
  }
  for (auto& transfer : left) {
    give_up(std::move(transfer->message));
    transfer->source.fail(
        failure_in(context_, Code::destroyed, "the group was destroyed", context_.rank));
  }
}

void Transfers::pause() const {
  if (oversubscribed_) sched_yield();
}

bool Transfers::must_end(const Call& call, FailurePtr& failure) {
  if (context_.control->broken()) {
    failure = context_.control->failure();
    return true;
  }
  if (std::chrono::steady_clock::now() < call.deadline) return false;
  failure = context_.control->fail(context_.control->timed_out(call, "running on MPI"));
  return true;
}

FailurePtr Transfers::failure_meanwhile() {
  std::atomic_thread_fence(std::memory_order_acquire);
  return context_.control->broken() ? context_.control->failure() : nullptr;
}

FailurePtr Transfers::finish(const Call& call, std::unique_ptr<Message>& message) {
  FailurePtr failure;
  while (!message->advance()) {
    if (must_end(call, failure)) {
      give_up(std::move(message));
      return failure;
    }
    pause();
  }
  return failure_of(call, *message);
}

Work Transfers::finish_later(const Call& call, std::unique_ptr<Message> message) {
  auto transfer = std::make_unique<Transfer>(call, std::move(message));
  const WorkSource source = transfer->source;
  bool watch = false;
  {
    MutexLock lock(mutex_);
    if (transfers_.size() == kMaxPending) {
      give_up(std::move(transfer->message));
      return Work::failed(*context_.control->fail(
          failure_in(context_, Code::out_of_resources,
                     fmt::format("more than {} messages of one group are pending: wait() for some",
                                 kMaxPending),
                     context_.rank)));
    }
    transfers_.push_back(std::move(transfer));
    watch = !std::exchange(watched_, true);
  }
  source.set_progress(std::make_shared<const std::function<bool()>>([weak = weak_from_this()] {
    const auto transfers = weak.lock();
    return transfers && transfers->poll();
  }));
  if (!watch) return source.work();
  add_progress([weak = weak_from_this()] {
    const auto transfers = weak.lock();
    if (!transfers) return Poll::done;
    if (transfers->poll()) return Poll::busy;
    return transfers->in_use() ? Poll::idle : Poll::done;
  });
  return source.work();
}

bool Transfers::in_use() {
  MutexLock lock(mutex_);
  watched_ = !transfers_.empty();
  return watched_;
}

bool Transfers::step(Transfer& transfer, FailurePtr& failure) {
  const Call& call = transfer.owned.call();
  try {
    if (!transfer.message->advance()) return must_end(call, failure);
    failure = failure_of(call, *transfer.message);
  } catch (const std::exception& error) {
    failure = library_error(call, error.what());
  }
  return true;
}

bool Transfers::poll() {
  if (!mutex_.try_lock()) return false;
  MutexLock lock(mutex_, std::adopt_lock);
  bool moved = false;
  for (auto place = transfers_.begin(); place != transfers_.end();) {
    FailurePtr failure;
    if (!step(**place, failure)) {
      ++place;
      continue;
    }
    moved = true;
    const std::unique_ptr<Transfer> done = std::move(*place);
    place = transfers_.erase(place);
    if (failure) {
      give_up(std::move(done->message));
      done->source.fail(*failure);
    } else {
      done->source.complete(done->message->received());
    }
  }
  return moved;
}

bool Transfers::finish_all(Deadline deadline) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (transfers_.empty()) return true;
    }
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (!poll()) sched_yield();
  }
}

FailurePtr Transfers::failure_of(const Call& call, const Message& message) {
  if (message.mismatch().empty()) return message.reads_sender() ? failure_meanwhile() : nullptr;
  return context_.control->fail(
      failure_in(context_, call, Code::mismatch, message.mismatch(), message.received().source));
}

FailurePtr Transfers::library_error(const Call& call, const char* what) {
  return context_.control->resolve_cause(
      failure_in(context_, call, Code::backend_error, fmt::format("MPI: {}", what), context_.rank),
      std::chrono::milliseconds(300));
}

}}  // namespace c10d::v0
