// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "c10d/error.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

enum class WorkState : std::uint8_t { running, ok, failed, cancelled, timed_out };
C10D_API std::string_view to_string(WorkState state) noexcept;

namespace detail {
struct WorkShared;
}

// The handle of one op. It has exactly one terminal transition, out of `running`. Copyable;
// thread-safe. Dropping it neither blocks nor loses the op: the op runs on, and its failure breaks
// the group. In a forked child wait() and then() on a running op of its parent throw forked_child.
class C10D_API Work {
 public:
  // An op that is already ok. Allocates nothing.
  Work() noexcept;
  // An op that failed before it could start.
  static Work failed(Failure failure);
  // An op that is ok, with the rank that a recv matched.
  static Work received_from(int source) noexcept;

  bool done() const noexcept;
  WorkState state() const noexcept;
  // The failure of a terminal state other than ok, else null. Valid as long as this handle.
  const Failure* failure() const noexcept;

  // Returns when the result is in place. Throws what the op failed with, every time it is called.
  void wait() const;
  // The same; throws DistTimeoutError when the op is still running after `timeout`: the op then
  // goes on.
  void wait(Duration timeout) const;
  // Makes a CUDA stream wait instead of the thread. CPU ops: wait().
  void order_on(void* cuda_stream) const;

  // Calls `callback` once, with the failure or null: at once when the op is done, else on the
  // library's callback thread; wait() does not wait for it. The callback may submit ops, not block
  // on the group of this op. What it throws is logged. Throws DistBackendError (out_of_resources)
  // when tens of thousands of callbacks wait for their turn, or their thread cannot be started.
  void then(std::function<void(const Failure*)> callback) const;

  // Of a recv: the rank whose message it took, once ok; else -1.
  int source() const noexcept;

 private:
  friend class WorkSource;
  friend struct detail::WorkShared;
  std::shared_ptr<detail::WorkShared> shared_;
  int source_ = -1;
};

// The other end, for backends: completes a Work once. Copyable; thread-safe; the first completion
// wins and the others are ignored (they return false).
class C10D_API WorkSource {
 public:
  WorkSource();
  Work work() const;
  bool complete(int source = -1) const noexcept;
  bool fail(Failure failure) const noexcept;
  // Runs inside wait() of the caller instead of sleeping there: must return soon; true = progress
  // was made. Must not throw. Shared, so that a backend may make one for all its ops.
  void set_progress(std::shared_ptr<const std::function<bool()>> poll) const;
  // Called by the first wait() without a timeout that would sleep, once: may take as long as the
  // op, and run it there. Must not throw.
  void set_runner(std::function<void()> run) const;

 private:
  std::shared_ptr<detail::WorkShared> shared_;
};

}}  // namespace c10d::v0
