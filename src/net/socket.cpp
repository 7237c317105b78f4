// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/socket.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "c10d/error.h"

namespace c10d::inline v0 {

void Fd::reset(int fd) noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

std::string error_text(int error) { return std::generic_category().message(error); }

int poll_timeout(Deadline deadline) noexcept {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= Duration::zero()) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<std::int64_t>(ms, 3'600'000));
}

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR)
      throw_failure({.code = Code::out_of_resources, .message = "poll: " + error_text(errno)});
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

}  // namespace c10d::inline v0
