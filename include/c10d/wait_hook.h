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
// While an object of this class lives, a wait of this thread that takes longer than kLookPeriod
// calls `look` about that often; each second while the server of a store does not answer. An op
// that blocks, Work::wait(), probe() and the joining of a group do so, and each wait for a key of a
// store. There is no such call inside Gloo and MPI: there take async() and Work::wait(). `look`
// must neither throw nor call the group, but for abort(), which ends its op; stores and other
// groups it may call. Once it returns true, and then each time, a wait for a store throws
// `revoked`, and so does init_process_group() as long as it waits for other ranks to join; an op
// goes on.
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
