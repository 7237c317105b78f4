// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace c10d { inline namespace v0 {

// Blocks every signal of this thread while it lives.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  const sigset_t& before() const noexcept { return before_; }

 private:
  sigset_t before_;
};

// A thread of the library: the program's signals are the business of its own threads. Throws
// std::system_error.
template <class Body>
std::thread start_thread(Body&& body) {
  const SignalsBlocked blocked;
  return std::thread(std::forward<Body>(body));
}

}}  // namespace c10d::v0
