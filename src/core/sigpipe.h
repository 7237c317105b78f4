// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csignal>
#include <ctime>

namespace c10d::inline v0 {

// A write to a pipe or a socket whose reader is gone would kill this process by SIGPIPE. While this
// lives the signal is blocked in this thread (and in those that it starts meanwhile); one that
// arrived is taken, so that the program never sees it.
class SigpipeBlock {
 public:
  SigpipeBlock() noexcept {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;
  ~SigpipeBlock() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec no_wait{};
    while (sigtimedwait(&sigpipe_, nullptr, &no_wait) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t sigpipe_;
  sigset_t before_;
};

}  // namespace c10d::inline v0
