// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>

#include <functional>
#include <optional>
#include <thread>

namespace c10d::bench {

// While it lives, what asks this process to end waits until launch() or take() takes it, or else
// until its end: a run that is interrupted anywhere writes its files whole. For the thread that
// launches; threads that it starts meanwhile take no such signal either.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // One that came, if any.
  std::optional<int> take() noexcept;
  const sigset_t& held() const noexcept { return held_; }

 private:
  sigset_t held_;
  sigset_t before_;
};

// For a process that may be anywhere when it is told to end: a thread that calls `end` with the
// first signal that is held.
class SignalWatch {
 public:
  SignalWatch(const HeldSignals& signals, std::function<void(int signal)> end);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  int signals_ = -1;
  int over_[2] = {-1, -1};  // a pipe whose end is the thread's
  std::thread thread_;
};

}  // namespace c10d::bench
