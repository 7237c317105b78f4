// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "c10d/error.h"

namespace c10d { inline namespace v0 {

namespace {

// With one packet sent again after a second: a host whose way takes longer counts as gone anyway.
constexpr Duration kAddressPatience = std::chrono::seconds(2);

// A connection to a port that nobody listens on may be given that very port, and meets itself.
bool is_own_peer(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_length = sizeof own, peer_length = sizeof peer;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
         own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

bool loopback_is_down() {
  const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  return fd && ::ioctl(fd.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
}

// A new network namespace begins so, and nobody is about to change it: waiting would be in vain.
void check_loopback(const std::vector<Address>& addresses, const std::string& problem) {
  const bool needed = std::all_of(addresses.begin(), addresses.end(),
                                  [](const Address& address) { return address.is_loopback(); });
  if (needed && loopback_is_down())
    throw_failure({.code = Code::unreachable,
                   .message = problem + "; the loopback interface of this network namespace is "
                                        "down: ip link set lo up"});
}

}  // namespace

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

bool send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

Fd listen_tcp(const Address& address) {
  Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  int error = 0;
  if (!fd) error = errno;
  // [::] means that address and not the IPv4 wildcard besides it.
  if (error == 0 && address.family() == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (error == 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (error == 0 && ::bind(fd.get(), address.get(), address.length) != 0) error = errno;
  if (error == 0 && ::listen(fd.get(), SOMAXCONN) != 0) error = errno;
  if (error == EADDRINUSE)
    throw_failure({.code = Code::address_in_use,
                   .message = fmt::format("{} is in use by another process, such as another job or "
                                          "a second rank 0; take another port",
                                          address.text())});
  if (error != 0)
    throw_failure({.code = Code::unreachable,
                   .message = fmt::format("cannot listen on {}: {}; give an address of this host",
                                          address.text(), error_text(error))});
  return fd;
}

void tune_tcp(int fd) noexcept {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1500);
}

void leave_unwatched(int fd) noexcept {
  const int none = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &none, sizeof none);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
}

Fd connect_tcp(const std::vector<Address>& addresses, Deadline deadline, std::string& problem) {
  const auto size = static_cast<Duration::rep>(addresses.size());
  for (Duration::rep i = 0; i < size; ++i) {
    const Address& address = addresses[static_cast<std::size_t>(i)];
    // One that swallows packets leaves the others their time.
    const auto now = std::chrono::steady_clock::now();
    const Deadline until = std::min(now + kAddressPatience, now + (deadline - now) / (size - i));
    Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = fd ? 0 : errno;
    if (error == 0 && ::connect(fd.get(), address.get(), address.length) != 0) error = errno;
    if (error == EINPROGRESS) {
      socklen_t length = sizeof error;
      if (!wait_for(fd.get(), POLLOUT, until))
        error = ETIMEDOUT;
      else
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0 && is_own_peer(fd.get())) error = ECONNREFUSED;
    if (error == 0) {
      tune_tcp(fd.get());
      return fd;
    }
    problem = fmt::format("{}: {}", address.text(), error_text(error));
  }
  check_loopback(addresses, problem);
  return {};
}

}}  // namespace c10d::v0
