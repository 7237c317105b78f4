// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "c10d/work.h"
#include "src/base/mutex.h"
#include "src/sync/process_singleton.h"

namespace c10d { inline namespace v0 { namespace detail {

struct WorkShared;

// What a user gave to Work::then.
struct Callback {
  std::function<void(const Failure*)> call;
  std::shared_ptr<WorkShared> work;  // set once the work is done: keeps its failure
};

// The state behind a Work. Who claims it ends it: `state` leaves `running` exactly once, under the
// mutex, after failure and source are written; readers that see a terminal state may read both
// without the mutex.
struct WorkShared {
  explicit WorkShared(WorkState initial = WorkState::running) : state(initial) {}

  std::atomic<WorkState> state;
  const std::uint64_t process = process_generation();
  Failure failure;
  int source = -1;

  using Settle = std::function<std::shared_ptr<const Failure>(const Failure*)>;

  Mutex mutex;
  CondVar changed;
  bool claimed C10D_GUARDED_BY(mutex) = false;
  Settle settle C10D_GUARDED_BY(mutex);
  std::function<void()> over C10D_GUARDED_BY(mutex);
  std::list<Callback> callbacks C10D_GUARDED_BY(mutex);
  std::function<void(const Failure*)> follower C10D_GUARDED_BY(mutex);
  std::shared_ptr<const std::function<bool()>> progress C10D_GUARDED_BY(mutex);
  std::function<void()> runner C10D_GUARDED_BY(mutex);

  // For the funnel, at most one of each. They take no memory: the op may be using its caller's
  // already.
  //
  // Has whoever ends the work call `settle` before anybody can hear of it, and `over` when it is
  // terminal. What `settle` returns is the failure that is heard of. False when the work is over;
  // then neither is called.
  static bool settle_by(const Work& work, Settle&& settle, std::function<void()>&& over) noexcept;
  // Calls `follower` when the work is terminal, in whichever thread makes it so; at once if it is
  // already.
  static void on_terminal(const Work& work,
                          std::function<void(const Failure*)>&& follower) noexcept;
};

}}}  // namespace c10d::v0::detail
