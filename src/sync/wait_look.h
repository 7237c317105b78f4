// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/error.h"
#include "c10d/wait_hook.h"

namespace c10d { inline namespace v0 {

// The side of the waits: each that may take long calls due() between its sleeps, and sleeps no
// longer than until next().
class WaitLook {
 public:
  // Whether this thread has a hook.
  static bool wanted() noexcept;
  // When its hook is due; without one the end of time.
  static Deadline next() noexcept;
  // Calls the hook of this thread if it is due. True: a wait for a store shall end.
  static bool due() noexcept;
  // What that wait fails with.
  static Failure failure();
};

}}  // namespace c10d::v0
