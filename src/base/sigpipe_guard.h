// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace c10d { inline namespace v0 {

// A write to a pipe or a socket whose reader is gone would kill this process by SIGPIPE, one to a
// file that is as long as `ulimit -f` allows by SIGXFSZ. While this lives both are blocked in this
// thread (and in those that it starts meanwhile); one that arrived is taken, so that the program
// never sees it. The write itself says EPIPE or EFBIG.
class WriteSignalsBlock {
 public:
  WriteSignalsBlock() noexcept {
    sigemptyset(&taken_);
    sigaddset(&taken_, SIGPIPE);
    sigaddset(&taken_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &taken_, &before_);
    for (const int signal : {SIGPIPE, SIGXFSZ})
      if (sigismember(&before_, signal) == 1) sigdelset(&taken_, signal);
  }
  WriteSignalsBlock(const WriteSignalsBlock&) = delete;
  WriteSignalsBlock& operator=(const WriteSignalsBlock&) = delete;
  ~WriteSignalsBlock() {
    const int error = errno;  // of the write
    const timespec no_wait{};
    while (sigtimedwait(&taken_, nullptr, &no_wait) > 0 || errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }

 private:
  sigset_t taken_;
  sigset_t before_;
};

}}  // namespace c10d::v0
