// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <tuple>

#include "c10d/error.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr int kFree = -1;
constexpr int kClaimed = -2;
std::atomic<int> relay_fd{kFree};
std::atomic<int> taker_fd{-1};
std::atomic<Deadline> job_end{Deadline::max()};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<Deadline>::is_always_lock_free);

void end_job_by(Deadline deadline) noexcept {
  Deadline known = job_end.load();
  while (deadline < known && !job_end.compare_exchange_weak(known, deadline)) {
  }
}

void relay(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  end_job_by(std::chrono::steady_clock::now());
  const int fd = relay_fd.load();
  // A full pipe holds thousands of signals that nobody took: one more changes nothing.
  if (fd >= 0) static_cast<void>(!write(fd, &byte, 1));
  errno = saved;
}

}  // namespace

SignalRelay::SignalRelay(const std::vector<int>& signals) {
  int expected = kFree;
  if (!relay_fd.compare_exchange_strong(expected, kClaimed)) {
    throw_failure({.code = Code::concurrent_use,
                   .message = "launch() already runs in another thread of this process"});
  }
  try {
    std::tie(read_, write_) = make_pipe(O_NONBLOCK);
  } catch (...) {
    relay_fd = kFree;
    throw;
  }
  relay_fd = write_.get();
  taker_fd = read_.get();
  job_end = Deadline::max();

  struct sigaction action {};
  action.sa_handler = relay;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigset_t relayed;
  sigemptyset(&relayed);
  for (const int signal : signals) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;
    old_.emplace_back(signal, old);
    sigaction(signal, &action, nullptr);
    sigaddset(&relayed, signal);
  }
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, nullptr, &old_child_);
  if (old_child_.sa_handler == SIG_IGN) sigaction(SIGCHLD, &by_default, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &relayed, &old_mask_);
}

SignalRelay::~SignalRelay() {
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  for (const auto& [signal, old] : old_) sigaction(signal, &old, nullptr);
  sigaction(SIGCHLD, &old_child_, nullptr);
  taker_fd = -1;
  job_end = Deadline::max();
  relay_fd = kFree;
  while (const std::optional<int> signal = take()) kill(getpid(), *signal);
}

void SignalRelay::end_by(Deadline deadline) noexcept { end_job_by(deadline); }
Deadline SignalRelay::end() noexcept { return job_end; }
int SignalRelay::current_fd() noexcept { return taker_fd; }

std::optional<int> SignalRelay::take() noexcept {
  unsigned char byte = 0;
  if (read(read_.get(), &byte, 1) != 1) return std::nullopt;
  return byte;
}

}}  // namespace c10d::v0
