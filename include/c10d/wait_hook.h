// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "c10d/call.h"
#include "c10d/export.h"
#include "c10d/work.h"

namespace c10d { inline namespace v0 {

// How often a wait calls the hook of its thread.
inline constexpr Duration kLookPeriod = std::chrono::milliseconds(50);

// Lets a thread that waits in a blocking call look at something else meanwhile: at a signal that
// the runtime of a language has caught, at a button that somebody pressed.
//
// While an object of this class lives, each wait of this thread calls `look` about every
// kLookPeriod, and every second while the server of a store does not answer. Waits are those of
// blocking ops, Work::wait(), probe(), joining a group, and for a key of a store. A blocking op of
// `gloo` or `mpi` does not call it: use async() and Work::wait().
//
// `look` must not throw. Of its group it may only call abort(), which ends the op; it may call
// stores and other groups. Once `look` returns true, every wait for a store throws `revoked`, and
// so does init_process_group() while it waits for other ranks. A running op goes on.
class C10D_API WaitHook {
 public:
  // See above. `state` is what `look` gets.
  WaitHook(bool (*look)(void* state), void* state) noexcept;
  // From now on the thread has the hook that it had before.
  ~WaitHook();
  WaitHook(const WaitHook&) = delete;
  WaitHook& operator=(const WaitHook&) = delete;

 private:
  bool (*const look_)(void*);
  void* const state_;
  WaitHook* const before_;
  Deadline next_{};  // none: the wait begins

  friend class WaitLook;
};

// Work::detach() for the runtime of a language, which keeps the buffers of the op: calls
// `when_done` once, as Work::on_done() does, when the op no longer needs them. It does not count as
// asking for the failure: one that nobody else got is logged, see unobserved_failures().
// Throws as on_done(); then the Work waits for its op.
C10D_API void detach(Work work, std::function<void(const Failure*)> when_done);

}}  // namespace c10d::v0
