// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>

#include <optional>

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

 private:
  sigset_t held_;
  sigset_t before_;
};

}  // namespace c10d::bench
