// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "c10d/spi/work_source.h"
#include "c10d/wait_hook.h"
#include "src/base/log.h"
#include "src/base/timeouts.h"
#include "src/group/callback_thread.h"
#include "src/group/work_shared.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 {
namespace {

std::atomic<std::uint64_t> unobserved = 0;

WorkState terminal_state(const Failure& failure) noexcept {
  if (failure.code == Code::timed_out) return WorkState::timed_out;
  return reason_of(failure.code) == Reason::aborted ? WorkState::cancelled : WorkState::failed;
}

const Failure* failure_of(const detail::WorkShared& shared) noexcept {
  return shared.state.load(std::memory_order_acquire) == WorkState::ok ? nullptr : &shared.failure;
}

// False when another thread ended it, or is about to.
bool finish(const std::shared_ptr<detail::WorkShared>& work, std::optional<Failure> failure,
            Received received) noexcept {
  detail::WorkShared& shared = *work;
  decltype(shared.callbacks) callbacks;
  decltype(shared.follower) follower;
  decltype(shared.on_released) on_released;
  decltype(shared.runner) runner;
  {
    MutexLock lock(shared.mutex);
    if (std::exchange(shared.claimed, true)) return false;
    shared.progress = nullptr;
    runner.swap(shared.runner);
    if (const auto on_complete = std::exchange(shared.on_complete, nullptr)) {
      shared.mutex.unlock();
      if (const auto seen = on_complete(failure ? &*failure : nullptr)) failure = *seen;
      shared.mutex.lock();
    }
    const WorkState state = failure ? terminal_state(*failure) : WorkState::ok;
    if (failure) shared.failure = *std::move(failure);
    shared.received = received;
    callbacks.swap(shared.callbacks);
    follower.swap(shared.follower);
    on_released.swap(shared.on_released);
    shared.state.store(state, std::memory_order_release);
    shared.changed.notify_all();
  }
  if (on_released) on_released();
  if (follower) {
    shared.observe();  // by the batch that follows
    follower(failure_of(shared));
  }
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
bool wait_for_end(detail::WorkShared& shared, std::optional<Deadline> deadline) {
  constexpr auto kPollPause = std::chrono::microseconds(50);
  if (shared.state.load(std::memory_order_acquire) != WorkState::running) return true;
  check_process_of(shared);
  MutexLock lock(shared.mutex);
  while (shared.state.load(std::memory_order_acquire) == WorkState::running) {
    if (deadline && std::chrono::steady_clock::now() >= *deadline) return false;
    if (WaitLook::wanted()) {
      shared.mutex.unlock();
      WaitLook::due();
      shared.mutex.lock();
      if (shared.state.load() != WorkState::running) break;
    }
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
    } else if (deadline || WaitLook::wanted()) {
      shared.changed.wait_until(shared.mutex,
                                std::min(deadline.value_or(Deadline::max()), WaitLook::next()));
    } else {
      shared.changed.wait(shared.mutex);
    }
  }
  return true;
}

}  // namespace

bool detail::WorkShared::wait_until(const Work& work, Deadline deadline) {
  return !work.shared_ || wait_for_end(*work.shared_, deadline);
}

const Failure* detail::WorkShared::failure_of(const Work& work) noexcept {
  return work.shared_ && work.done() ? v0::failure_of(*work.shared_) : nullptr;
}

bool detail::WorkShared::set_hooks(const Work& work, const std::shared_ptr<FailureWatch>& watch,
                                   OnComplete&& on_complete,
                                   std::function<void()>&& on_released) noexcept {
  const auto& shared = work.shared_;
  if (!shared) return false;
  MutexLock lock(shared->mutex);
  if (shared->claimed) return false;
  shared->watch = watch;
  shared->on_complete = std::move(on_complete);
  shared->on_released = std::move(on_released);
  return true;
}

void detail::WorkShared::set_watch(const Work& work,
                                   const std::shared_ptr<FailureWatch>& watch) noexcept {
  if (work.shared_) work.shared_->watch = watch;
}

void detail::WorkShared::follow(Work work,
                                std::function<void(const Failure*)>&& follower) noexcept {
  const auto shared = std::move(work.shared_);
  if (!shared) return follower(nullptr);
  {
    MutexLock lock(shared->mutex);
    if (shared->state.load(std::memory_order_relaxed) == WorkState::running) {
      shared->follower = std::move(follower);
      return;
    }
  }
  shared->observe();
  follower(v0::failure_of(*shared));
}

detail::WorkShared::~WorkShared() {
  const WorkState end = state.load(std::memory_order_acquire);
  if (end == WorkState::ok || end == WorkState::running || observed || !watch) return;
  watch->note_unobserved(failure);
}

std::uint64_t unobserved_failures() noexcept { return unobserved.load(); }

void detail::FailureWatch::note_unobserved(const Failure& failure) noexcept try {
  MutexLock lock(mutex_);
  if (ended_) {
    if (!observed_) report(failure);
  } else if (!first_) {
    first_ = failure;
  }
} catch (const std::exception&) {  // no memory to keep it
  ++unobserved;
}

void detail::FailureWatch::end() noexcept {
  MutexLock lock(mutex_);
  ended_ = true;
  if (first_ && !observed_) report(*first_);
  first_.reset();
}

void detail::FailureWatch::report(const Failure& failure) noexcept {
  observed_ = true;  // once is enough
  ++unobserved;
  log(LogLevel::error,
      "group \"{}\": {} #{} failed after its call had returned, its output may hold anything, and "
      "nobody asked its Work or the group: {}; call wait(), on_done(), or barrier()",
      group_, failure.op.empty() ? "op" : failure.op, failure.sequence, failure.message);
}

Work::Work() noexcept = default;
Work::Work(Work&& other) noexcept
    : shared_(std::move(other.shared_)), received_(std::exchange(other.received_, {})) {}
Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    const Work ended(std::move(*this));
    shared_ = std::move(other.shared_);
    received_ = std::exchange(other.received_, {});
  }
  return *this;
}

Work::~Work() {
  if (!shared_ || shared_->process != process_generation()) return;
  try {
    wait_for_end(*shared_, std::nullopt);
  } catch (const std::exception& error) {
    log(LogLevel::error, "a Work could not wait for its op: {}", error.what());
  }
}

Work Work::failed(Failure failure) {
  WorkSource source;
  source.fail(std::move(failure));
  return source.work();
}

Work Work::received(Received message) noexcept {
  Work work;
  work.received_ = message;
  return work;
}

bool Work::done() const noexcept { return state() != WorkState::running; }

WorkState Work::state() const noexcept {
  return shared_ ? shared_->state.load(std::memory_order_acquire) : WorkState::ok;
}

const Failure* Work::failure() const noexcept {
  const Failure* const failed_with = detail::WorkShared::failure_of(*this);
  if (failed_with != nullptr) shared_->observe();
  return failed_with;
}

void Work::wait() const {
  if (!shared_) return;
  wait_for_end(*shared_, std::nullopt);
  if (const Failure* failed_with = failure()) throw_failure(*failed_with);
}

void Work::wait(Duration timeout) const {
  if (!shared_) return;
  if (!wait_for_end(*shared_, std::chrono::steady_clock::now() + clamp_timeout(timeout)))
    throw_failure({.code = Code::timed_out,
                   .message = fmt::format("wait({:.3f} s) ended before the op; the op continues",
                                          std::chrono::duration<double>(timeout).count())});
  if (const Failure* failed_with = failure()) throw_failure(*failed_with);
}

void Work::synchronize_stream(CudaStream stream) const {
  if (!shared_ || !shared_->order) return wait();
  if (const Failure* failed_with = failure()) throw_failure(*failed_with);
  shared_->order(stream);
}

void Work::detach() noexcept { shared_.reset(); }

void Work::on_done(std::function<void(const Failure*)> callback) const {
  detail::WorkShared::on_done(*this, std::move(callback), true);
}

void detach(Work work, std::function<void(const Failure*)> when_done) {
  detail::WorkShared::on_done(work, std::move(when_done), false);
  work.detach();
}

void detail::WorkShared::on_done(const Work& work, std::function<void(const Failure*)>&& callback,
                                 bool is_observer) {
  const auto shared = work.shared_ ? work.shared_ : std::make_shared<WorkShared>(WorkState::ok);
  if (!work.done()) {
    check_process_of(*shared);
    prepare_callbacks();
    MutexLock lock(shared->mutex);
    if (shared->state.load(std::memory_order_relaxed) == WorkState::running) {
      shared->callbacks.push_back({std::move(callback), nullptr, is_observer});
      return;
    }
  }
  run_callback({std::move(callback), shared, is_observer});
}

Received Work::received() const noexcept {
  if (!shared_) return received_;
  return done() ? shared_->received : Received{};
}

void detail::wait_for_each(std::span<const Work* const> works) {
  for (const Work* work : works) try {
      work->wait();
    } catch (const DistError&) {  // thrown below
    }
  for (const Work* work : works) work->wait();
}

void wait_all(std::span<const Work> works) {
  std::vector<const Work*> all;
  for (const Work& work : works) all.push_back(&work);
  detail::wait_for_each(all);
}

std::size_t wait_any(std::span<const Work> works, Duration timeout) {
  if (works.empty()) throw InvalidArgument("wait_any: the list is empty");
  constexpr auto kTurn = std::chrono::microseconds(50);  // of one op, which it may drive meanwhile
  const Deadline end = std::chrono::steady_clock::now() + clamp_timeout(timeout);
  while (true) {
    for (std::size_t i = 0; i < works.size(); ++i)
      if (works[i].done()) return i;
    for (std::size_t i = 0; i < works.size(); ++i)
      if (detail::WorkShared::wait_until(works[i], std::chrono::steady_clock::now() + kTurn))
        return i;
    if (std::chrono::steady_clock::now() >= end)
      throw_failure(
          {.code = Code::timed_out,
           .message = fmt::format("wait_any: none of {} ops was done in {:.3f} s; they "
                                  "continue",
                                  works.size(), std::chrono::duration<double>(timeout).count())});
  }
}

WorkSource::WorkSource() : shared_(std::make_shared<detail::WorkShared>()) {}

Work WorkSource::work() const {
  Work work;
  work.shared_ = shared_;
  return work;
}

bool WorkSource::complete(Received received) const noexcept {
  return finish(shared_, std::nullopt, received);
}

bool WorkSource::fail(Failure failure) const noexcept {
  return finish(shared_, std::move(failure), {});
}

void WorkSource::set_progress(std::shared_ptr<const std::function<bool()>> poll) const {
  MutexLock lock(shared_->mutex);
  if (!shared_->claimed) shared_->progress = std::move(poll);
}

void WorkSource::set_order(std::function<void(CudaStream)> order) const {
  shared_->order = std::move(order);
}

void WorkSource::set_runner(std::function<void()> run) const {
  MutexLock lock(shared_->mutex);
  if (!shared_->claimed) shared_->runner = std::move(run);
}

}}  // namespace c10d::v0
