// SPDX-License-Identifier: BSD-3-Clause
#include "bench/held_signals.h"

#include <ctime>

namespace c10d::bench {

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&held_, signal);  // as nohup has it
  }
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

std::optional<int> HeldSignals::take() noexcept {
  const timespec at_once{};
  const int signal = sigtimedwait(&held_, nullptr, &at_once);
  return signal > 0 ? std::optional(signal) : std::nullopt;
}

}  // namespace c10d::bench
