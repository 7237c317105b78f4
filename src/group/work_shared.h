// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "c10d/work.h"
#include "src/base/mutex.h"
#include "src/sync/process_singleton.h"

namespace c10d { inline namespace v0 { namespace detail {

struct WorkShared;

// Whether the program got to know that async ops of a group failed. Shared by the group and its
// ops, which may outlive each other.
class FailureWatch {
 public:
  explicit FailureWatch(std::string group) : group_(std::move(group)) {}
  // The program got a failure of the group.
  void observe() noexcept { observed_.store(true, std::memory_order_relaxed); }
  // An op failed, and nobody got the failure.
  void note_unobserved(const Failure& failure) noexcept;
  // The group ended: logs what nobody got, and from now on at once.
  void end() noexcept;

 private:
  void report(const Failure& failure) noexcept;

  const std::string group_;
  std::atomic<bool> observed_ = false;
  Mutex mutex_;
  bool ended_ C10D_GUARDED_BY(mutex_) = false;
  std::optional<Failure> first_ C10D_GUARDED_BY(mutex_);
};

// What a user gave to Work::on_done.
struct Callback {
  std::function<void(const Failure*)> call;
  std::shared_ptr<WorkShared> work;  // set once the work is done: keeps its failure
  bool is_observer = true;           // it gets the failure for the program
};

// The state behind a Work. The thread that claims it ends it: `state` leaves `running` exactly
// once, under the mutex, after failure and source are written. A reader that sees a terminal state
// may read both without the mutex.
struct WorkShared {
  explicit WorkShared(WorkState initial = WorkState::running) : state(initial) {}
  ~WorkShared();
  WorkShared(const WorkShared&) = delete;
  WorkShared& operator=(const WorkShared&) = delete;

  std::atomic<WorkState> state;
  const std::uint64_t process = process_generation();
  Failure failure;
  Received received;
  std::shared_ptr<FailureWatch> watch;  // of the group, set before a user has the Work
  std::atomic<bool> observed = false;

  // Somebody gets the failure.
  void observe() noexcept {
    if (!observed.exchange(true, std::memory_order_relaxed) && watch) watch->observe();
  }

  using OnComplete = std::function<std::shared_ptr<const Failure>(const Failure*)>;

  Mutex mutex;
  CondVar changed;
  bool claimed C10D_GUARDED_BY(mutex) = false;
  OnComplete on_complete C10D_GUARDED_BY(mutex);
  std::function<void()> on_released C10D_GUARDED_BY(mutex);
  std::list<Callback> callbacks C10D_GUARDED_BY(mutex);
  std::function<void(const Failure*)> follower C10D_GUARDED_BY(mutex);
  std::shared_ptr<const std::function<bool()>> progress C10D_GUARDED_BY(mutex);
  std::function<void()> runner C10D_GUARDED_BY(mutex);
  std::function<void(CudaStream)> order;  // set before a user has the Work

  // For the funnel, at most one of each. They allocate nothing: the op may already be using its
  // caller's memory.
  //
  // The thread that ends the work calls `on_complete` before anybody can see the result, and
  // `on_released` once the state is terminal. The failure that `on_complete` returns is the one
  // that callers see. False when the work has ended already: then neither is called, and `watch`
  // is not set.
  static bool set_hooks(const Work& work, const std::shared_ptr<FailureWatch>& watch,
                        OnComplete&& on_complete, std::function<void()>&& on_released) noexcept;
  // As Work::failure(), for those who do not hand it to the program.
  static const Failure* failure_of(const Work& work) noexcept;
  static void set_watch(const Work& work, const std::shared_ptr<FailureWatch>& watch) noexcept;
  // Drives the op until it is done or the deadline has passed; false: it still runs.
  static bool wait_until(const Work& work, Deadline deadline);
  // Gives up the handle and calls `follower` when the work is terminal, in whichever thread makes
  // it so; at once if it is already.
  static void follow(Work work, std::function<void(const Failure*)>&& follower) noexcept;
  // Work::on_done(), and `is_observer` as above.
  static void on_done(const Work& work, std::function<void(const Failure*)>&& callback,
                      bool is_observer);
};

}}}  // namespace c10d::v0::detail
