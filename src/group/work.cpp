// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/work.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "c10d/spi/work_source.h"
#include "src/base/timeouts.h"
#include "src/group/callback_thread.h"
#include "src/group/work_shared.h"

namespace c10d { inline namespace v0 {
namespace {

WorkState terminal_state(const Failure& failure) noexcept {
  if (failure.code == Code::timed_out) return WorkState::timed_out;
  return reason_of(failure.code) == Reason::aborted ? WorkState::cancelled : WorkState::failed;
}

const Failure* failure_of(const detail::WorkShared& shared) noexcept {
  return shared.state.load(std::memory_order_acquire) == WorkState::ok ? nullptr : &shared.failure;
}

// False when another one ended it, or is about to.
bool finish(const std::shared_ptr<detail::WorkShared>& work, std::optional<Failure> failure,
            int source) noexcept {
  detail::WorkShared& shared = *work;
  decltype(shared.callbacks) callbacks;
  decltype(shared.follower) follower;
  decltype(shared.over) over;
  decltype(shared.runner) runner;
  {
    MutexLock lock(shared.mutex);
    if (std::exchange(shared.claimed, true)) return false;
    shared.progress = nullptr;
    runner.swap(shared.runner);
    if (const auto settle = std::exchange(shared.settle, nullptr)) {
      shared.mutex.unlock();
      if (const auto settled = settle(failure ? &*failure : nullptr)) failure = *settled;
      shared.mutex.lock();
    }
    const WorkState state = failure ? terminal_state(*failure) : WorkState::ok;
    if (failure) shared.failure = *std::move(failure);
    shared.source = source;
    callbacks.swap(shared.callbacks);
    follower.swap(shared.follower);
    over.swap(shared.over);
    shared.state.store(state, std::memory_order_release);
    shared.changed.notify_all();
  }
  if (over) over();
  if (follower) follower(failure_of(shared));
  for (detail::Callback& callback : callbacks) callback.work = work;
  run_on_callback_thread(callbacks);
  return true;
}

// A child has neither the threads that complete the work nor the memory, and the mutex may stay
// locked.
void check_process_of(const detail::WorkShared& shared) {
  if (shared.process != process_generation())
    throw_failure({.code = Code::forked_child,
                   .message = "this op belongs to the parent process, which alone can wait for it; "
                              "a forked child makes its own group, or starts with exec"});
}

// Waits until the work is terminal or the deadline has passed, driving the op where it asks for
// that.
bool wait_until(detail::WorkShared& shared, std::optional<Deadline> deadline) {
  constexpr auto kPollPause = std::chrono::microseconds(50);
  if (shared.state.load(std::memory_order_acquire) != WorkState::running) return true;
  check_process_of(shared);
  MutexLock lock(shared.mutex);
  while (shared.state.load(std::memory_order_acquire) == WorkState::running) {
    if (deadline && std::chrono::steady_clock::now() >= *deadline) return false;
    if (const auto progress = shared.progress) {
      shared.mutex.unlock();
      const bool progressed = (*progress)();
      shared.mutex.lock();
      if (!progressed && shared.state.load() == WorkState::running)
        shared.changed.wait_for(shared.mutex, kPollPause);
    } else if (!deadline && shared.runner) {
      const auto run = std::exchange(shared.runner, nullptr);
      shared.mutex.unlock();
      run();
      shared.mutex.lock();
    } else if (deadline) {
      shared.changed.wait_until(shared.mutex, *deadline);
    } else {
      shared.changed.wait(shared.mutex);
    }
  }
  return true;
}

}  // namespace

bool detail::WorkShared::settle_by(const Work& work, Settle&& settle,
                                   std::function<void()>&& over) noexcept {
  const auto& shared = work.shared_;
  if (!shared) return false;
  MutexLock lock(shared->mutex);
  if (shared->claimed) return false;
  shared->settle = std::move(settle);
  shared->over = std::move(over);
  return true;
}

void detail::WorkShared::on_terminal(const Work& work,
                                     std::function<void(const Failure*)>&& follower) noexcept {
  if (const auto& shared = work.shared_) {
    MutexLock lock(shared->mutex);
    if (shared->state.load(std::memory_order_relaxed) == WorkState::running) {
      shared->follower = std::move(follower);
      return;
    }
  }
  follower(work.failure());
}

Work::Work() noexcept = default;

Work Work::failed(Failure failure) {
  WorkSource source;
  source.fail(std::move(failure));
  return source.work();
}

Work Work::received_from(int source) noexcept {
  Work work;
  work.source_ = source;
  return work;
}

bool Work::done() const noexcept { return state() != WorkState::running; }

WorkState Work::state() const noexcept {
  return shared_ ? shared_->state.load(std::memory_order_acquire) : WorkState::ok;
}

const Failure* Work::failure() const noexcept {
  return done() && shared_ ? failure_of(*shared_) : nullptr;
}

void Work::wait() const {
  if (!shared_) return;
  wait_until(*shared_, std::nullopt);
  if (const Failure* failed_with = failure()) throw_failure(*failed_with);
}

void Work::wait(Duration timeout) const {
  if (!shared_) return;
  if (!wait_until(*shared_, std::chrono::steady_clock::now() + clamp_timeout(timeout)))
    throw_failure({.code = Code::timed_out,
                   .message = fmt::format("wait({:.3f} s) ended before the op; the op goes on",
                                          std::chrono::duration<double>(timeout).count())});
  if (const Failure* failed_with = failure()) throw_failure(*failed_with);
}

void Work::synchronize_stream(CudaStream /*stream*/) const { wait(); }

void Work::then(std::function<void(const Failure*)> callback) const {
  const auto shared = shared_ ? shared_ : std::make_shared<detail::WorkShared>(WorkState::ok);
  if (!done()) {
    check_process_of(*shared);
    prepare_callbacks();
    MutexLock lock(shared->mutex);
    if (shared->state.load(std::memory_order_relaxed) == WorkState::running) {
      shared->callbacks.push_back({std::move(callback), nullptr});
      return;
    }
  }
  run_callback({std::move(callback), shared});
}

int Work::source() const noexcept { return shared_ ? (done() ? shared_->source : -1) : source_; }

WorkSource::WorkSource() : shared_(std::make_shared<detail::WorkShared>()) {}

Work WorkSource::work() const {
  Work work;
  work.shared_ = shared_;
  return work;
}

bool WorkSource::complete(int source) const noexcept {
  return finish(shared_, std::nullopt, source);
}

bool WorkSource::fail(Failure failure) const noexcept {
  return finish(shared_, std::move(failure), -1);
}

void WorkSource::set_progress(std::shared_ptr<const std::function<bool()>> poll) const {
  MutexLock lock(shared_->mutex);
  if (!shared_->claimed) shared_->progress = std::move(poll);
}

void WorkSource::set_runner(std::function<void()> run) const {
  MutexLock lock(shared_->mutex);
  if (!shared_->claimed) shared_->runner = std::move(run);
}

}}  // namespace c10d::v0
