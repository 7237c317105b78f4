// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "c10d/call.h"
#include "c10d/error.h"

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

// The handle of one async op, a future without a value: the result is in the buffers of the op. It
// is movable and not copyable. All const members may be called from any thread.
//
// The destructor waits for the op, unless detach() was called, so that buffers that were declared
// before the Work outlive the op. It never throws: a failure that nobody got is logged when the
// group ends, see unobserved_failures(). The op has a deadline, so no wait is endless. A single op
// cannot be cancelled: ProcessGroup::abort() ends all of its group.
//
// An op leaves `running` once, for one of the other states, and keeps that state. The handle may
// outlive the group. In a forked child, wait() and on_done() on an op of the parent that was still
// running throw forked_child, and the destructor does not wait.
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  // An op that is already ok.
  Work() noexcept;
  // Takes over the op of `other`, which is ok afterwards.
  Work(Work && other) noexcept;
  // Waits for the op that was here, as the destructor does, and takes over that of `other`.
  Work& operator=(Work&& other) noexcept;
  ~Work();
  // An op that has already failed. For backends.
  static Work failed(Failure failure);
  // A recv that is already ok. For backends.
  static Work received(Received message) noexcept;

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
  // Makes a CUDA stream wait for the op, instead of this thread. Throws if the op has failed by
  // now; of a later failure the next call of the group tells. For an op on CPU memory, and for a
  // batch, it is wait().
  void synchronize_stream(CudaStream stream) const;

  // Gives up the handle without waiting: the op continues to use its buffers, which must stay valid
  // until it is done, and its failure breaks the group. The handle is ok afterwards.
  void detach() noexcept;

  // Calls `callback` once with the failure, or with null when the op is ok: at once in this thread
  // when the op is already done, else later in the library's one callback thread. wait() does not
  // wait for the callback. The callback may submit async ops; it must not block on the group of
  // this op. An exception out of it is logged.
  // Throws DistBackendError (out_of_resources) when 65,536 callbacks wait for their turn, or when
  // the callback thread cannot be started.
  void on_done(std::function<void(const Failure*)> callback) const;

  // What a recv got. {-1, 0} until the recv is ok, and for every other op.
  Received received() const noexcept;

 private:
  friend class WorkSource;
  friend struct detail::WorkShared;
  std::shared_ptr<detail::WorkShared> shared_;
  Received received_;
};

namespace detail {
C10D_API void wait_for_each(std::span<const Work* const> works);
}
// Waits until all are done. Throws the failure of the first one in the list that failed.
C10D_API void wait_all(std::span<const Work> works);
// The same: wait_all(a, b, c).
template <std::same_as<Work>... More>
void wait_all(const Work& first, const More&... more) {
  const Work* const works[] = {&first, &more...};
  detail::wait_for_each(works);
}
// Waits until at least one is done and returns its index; a failed one counts. Throws
// DistTimeoutError if none is done within `timeout`, InvalidArgument for an empty list.
C10D_API std::size_t wait_any(std::span<const Work> works,
                              Duration timeout = std::chrono::hours(24 * 365));

// Number of failures of async ops in this process that the program never saw: no call threw them,
// no Work was asked for them, no callback got them. Each was logged, at level `error`, when its
// group ended.
C10D_API std::uint64_t unobserved_failures() noexcept;

}}  // namespace c10d::v0
