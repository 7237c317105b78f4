// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>

#include "c10d/work.h"

namespace c10d { inline namespace v0 {

// The other end of a Work, for backends: completes it. Copyable, and every member may be called
// from any thread. The first completion counts; later ones return false and do nothing.
class C10D_API WorkSource {
 public:
  // A new op, in state running.
  WorkSource();
  // The handle of the op.
  Work work() const;
  // Ends the op well. `received` is what a recv got.
  bool complete(Received received = {}) const noexcept;
  // Ends the op with that failure.
  bool fail(Failure failure) const noexcept;
  // Sets what wait() calls instead of sleeping. `poll` must return soon and not throw; it returns
  // whether it made progress. It is shared, so that a backend may use one for all its ops.
  void set_progress(std::shared_ptr<const std::function<bool()>> poll) const;
  // Sets what the first wait() without a timeout calls, once, where it would sleep. `run` may take
  // as long as the op and run it there. It must not throw.
  void set_runner(std::function<void()> run) const;
  // Sets how a stream waits for the op: what synchronize_stream() calls, instead of waiting
  // itself. It may be called any number of times, also after the end of the op, and may throw.
  void set_order(std::function<void(CudaStream)> order) const;

 private:
  std::shared_ptr<detail::WorkShared> shared_;
};

}}  // namespace c10d::v0
