// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>

#include <array>
#include <optional>

#include "src/net/socket.h"

namespace c10d::inline v0 {

inline constexpr std::array<int, 4> kForwardedSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// While it lives, the forwarded signals arrive as bytes on a descriptor, also those that the caller
// blocks in this thread and that came before, and ended children can be waited for even when the
// caller ignores SIGCHLD. A signal that the caller ignores (nohup) stays ignored; one that nobody
// took is the caller's in the end. One at a time in a process.
class SignalRelay {
 public:
  SignalRelay();  // throws DistBackendError (concurrent_use, out_of_resources)
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  int fd() const noexcept { return read_.get(); }
  // The oldest signal that has not been taken, if any.
  std::optional<int> take() noexcept;

  // The job's time is over then.
  void end_by(Deadline deadline) noexcept;

  // Of the relay that lives, for who waits elsewhere: when the job began to end, or will as far as
  // is known (a signal came, or its time is over), and a descriptor that is readable from a signal
  // on until it is taken (-1: there is none).
  static Deadline end() noexcept;
  static int current_fd() noexcept;

 private:
  Fd read_, write_;
  std::array<struct sigaction, kForwardedSignals.size()> old_{};
  struct sigaction old_child_ {};
  sigset_t old_mask_;
};

}  // namespace c10d::inline v0
