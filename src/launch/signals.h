// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>

#include <optional>
#include <utility>
#include <vector>

#include "c10d/export.h"
#include "src/launch/spawn.h"

namespace c10d { inline namespace v0 {

// While it lives, `signals` arrive as bytes on a descriptor, including those that the
// caller has blocked in this thread and that are pending. Ended children can be waited for even
// when the caller ignores SIGCHLD. A signal that the caller ignores (nohup) stays ignored; one that
// nobody took is raised again at the end, in the caller. One at a time in a process.
class C10D_API SignalRelay {
 public:
  explicit SignalRelay(const std::vector<int>&
                           signals);  // throws DistBackendError (concurrent_use, out_of_resources)
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  int fd() const noexcept { return read_.get(); }
  // The oldest signal that has not been taken, if any.
  std::optional<int> take() noexcept;

  // The job's time is over then.
  void end_by(Deadline deadline) noexcept;

  // Of the relay that lives, for code that waits elsewhere. When the job began to end (by a signal)
  // or, as far as is known, will end (when its time is over).
  static Deadline end() noexcept;
  // Readable while a signal waits to be taken; -1 where no relay lives.
  static int current_fd() noexcept;

 private:
  Fd read_, write_;
  std::vector<std::pair<int, struct sigaction>> old_;
  struct sigaction old_child_ {};
  sigset_t old_mask_;
};

}}  // namespace c10d::v0
