// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/signal_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "c10d/error.h"

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

SignalWatch::SignalWatch(const HeldSignals& signals, std::function<void(int signal)> end)
    : signals_(signalfd(-1, &signals.held(), SFD_CLOEXEC)) {
  if (signals_ < 0 || pipe2(over_, O_CLOEXEC) != 0)
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("no descriptor for signals: {}", std::strerror(errno))});
  thread_ = std::thread([this, end = std::move(end)] {
    std::array<pollfd, 2> either{pollfd{over_[0], POLLIN, 0}, pollfd{signals_, POLLIN, 0}};
    while (poll(either.data(), either.size(), -1) < 0) {
    }
    signalfd_siginfo came{};
    if (either[0].revents == 0 && read(signals_, &came, sizeof came) == sizeof came)
      end(static_cast<int>(came.ssi_signo));
  });
}

SignalWatch::~SignalWatch() {
  close(over_[1]);
  thread_.join();
  close(over_[0]);
  close(signals_);
}

}  // namespace c10d::bench
