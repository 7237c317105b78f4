// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "c10d/device.h"
#include "c10d/error.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// State of an op.
enum class WorkState : std::uint8_t {
  running,    // not done yet
  ok,         // done, the result is in place
  failed,     // failed for another reason than the next two
  cancelled,  // failed with Reason::aborted: abort(), the end of the group, a fork
  timed_out   // failed with Code::timed_out
};
// Name of a state: "running", "ok", ...
C10D_API std::string_view to_string(WorkState state) noexcept;

class WorkSource;
namespace detail {
struct WorkShared;
}

// The handle of one op, a future without a value: the result is in the buffers of the op. It is
// copyable, all copies are the same op, and every member may be called from any thread.
//
// An op leaves `running` once, for one of the other states, and keeps that state. Dropping the
// handle neither waits for the op nor cancels it: the op continues to use its buffers, and its
// failure breaks the group. The handle may outlive the group. In a forked child, wait() and then()
// on an op of the parent that was still running throw forked_child.
class C10D_API Work {
 public:
  // An op that is already ok.
  Work() noexcept;
  // An op that has already failed. For backends.
  static Work failed(Failure failure);
  // A recv that is already ok, with the rank that sent the message. For backends.
  static Work received_from(int source) noexcept;

  // Whether the op has ended, well or not. Does not wait.
  bool done() const noexcept;
  // The state of the op now.
  WorkState state() const noexcept;
  // What the op failed with; null while it runs and when it is ok. Valid as long as this handle.
  const Failure* failure() const noexcept;

  // Waits until the op is done. Then the result is in place, and the buffers belong to the caller
  // again. If the op failed, throws its failure, at every call. The deadline of the op bounds the
  // wait.
  void wait() const;
  // The same, but waits at most `timeout`. If the op still runs then, throws DistTimeoutError: the
  // op continues, and the group stays intact.
  void wait(Duration timeout) const;
  // Reserved (device.h): makes a CUDA stream wait for the op, instead of this thread. For CPU
  // tensors it is wait().
  void synchronize_stream(CudaStream stream) const;

  // Calls `callback` once with the failure, or with null when the op is ok: at once in this thread
  // when the op is already done, else later in the library's one callback thread. wait() does not
  // wait for the callback. The callback may submit async ops; it must not block on the group of
  // this op. An exception out of it is logged.
  // Throws DistBackendError (out_of_resources) when 65,536 callbacks wait for their turn, or when
  // the callback thread cannot be started.
  void then(std::function<void(const Failure*)> callback) const;

  // The rank whose message a recv took. -1 until the recv is ok, and for every other op.
  int source() const noexcept;

 private:
  friend class WorkSource;
  friend struct detail::WorkShared;
  std::shared_ptr<detail::WorkShared> shared_;
  int source_ = -1;
};

}}  // namespace c10d::v0
