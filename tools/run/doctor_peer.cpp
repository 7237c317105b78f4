// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "c10d/capability.h"
#include "c10d/error.h"
#include "src/launch/line_output.h"
#include "src/net/address.h"
#include "src/net/socket.h"
#include "src/net/token.h"
#include "src/sync/thread.h"
#include "tools/run/doctor.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{3};  // of one connection
constexpr std::size_t kSmall = 1;
// More than any packet and less than what sockets hold, so that the way itself is tried.
constexpr std::size_t kLarge = std::size_t{64} << 10;

bool receive_all(int fd, std::size_t bytes, Deadline deadline, std::string& text) {
  text.clear();
  char piece[4096];
  while (text.size() < bytes) {
    if (!wait_for(fd, POLLIN, deadline)) return false;
    const ssize_t n = recv(fd, piece, std::min(sizeof piece, bytes - text.size()), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    text.append(piece, static_cast<std::size_t>(n));
  }
  return true;
}

// Sends back to whoever knows the secret what came from there: a small message and a large one.
void serve(const Fd& listener, const std::string& secret) {
  for (;;) {
    pollfd entry{listener.get(), POLLIN, 0};
    ::poll(&entry, 1, -1);
    const Fd other(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!other) continue;
    const Deadline deadline = steady_clock::now() + kPatience;
    std::string text;
    if (!receive_all(other.get(), secret.size(), deadline, text) || !equal_secrets(text, secret))
      continue;
    for (const std::size_t bytes : {kSmall, kLarge})
      if (!receive_all(other.get(), bytes, deadline, text) ||
          !send_all(other.get(), text, deadline))
        break;
  }
}

// "ok ADDRESS PORT", or "failed WHY".
std::string listen_on(std::istringstream& words) {
  std::string secret, host;
  std::uint16_t port = 0;
  words >> secret >> port >> host;
  const Address address = resolve(host, port).front();
  Fd listener = listen_tcp(address);
  const std::uint16_t taken = local_address(listener.get()).port();
  start_thread([listener = std::move(listener), secret] { serve(listener, secret); }).detach();
  return fmt::format("ok {} {}", address.host(), taken);
}

int mtu_of(int fd, int family) {
  int mtu = 0;
  socklen_t size = sizeof mtu;
  if (family == AF_INET6)
    getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &size);
  else
    getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &size);
  return mtu;
}

// "ok ADDRESS MTU MICROSECONDS", or "failed WHY".
std::string reach(std::istringstream& words) {
  std::string secret, host;
  std::uint16_t port = 0;
  words >> secret >> port >> host;
  const Deadline deadline = steady_clock::now() + kPatience;
  const std::vector<Address> addresses = resolve(host, port);
  std::string problem;
  const Fd other = connect_tcp(addresses, deadline, problem);
  if (!other) return "failed " + problem;
  std::string text;
  send_all(other.get(), secret, deadline);
  const auto start = steady_clock::now();
  if (!send_all(other.get(), std::string(kSmall, 'x'), deadline) ||
      !receive_all(other.get(), kSmall, deadline, text))
    return "failed somebody else answers at this port";
  const auto time = std::chrono::duration<double, std::micro>(steady_clock::now() - start);
  const int mtu = mtu_of(other.get(), addresses.front().family());
  if (!send_all(other.get(), std::string(kLarge, 'x'), deadline) ||
      !receive_all(other.get(), kLarge, deadline, text))
    return fmt::format(
        "failed small messages pass and large ones do not: something on the way "
        "passes packets of less than the MTU of {}; lower it on both hosts",
        mtu);
  return fmt::format("ok {} {} {:.0f}", addresses.front().host(), mtu, time.count());
}

std::string answer_to(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  words >> word >> std::ws;
  if (word == "version") return version();
  if (word == "clock")
    return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count());
  if (word == "sees") {
    std::string path;
    std::getline(words, path);
    return access(path.c_str(), F_OK) == 0 ? "yes" : "no";
  }
  try {
    if (word == "listen") return listen_on(words);
    if (word == "reach") return reach(words);
  } catch (const DistError& error) {
    return "failed " + error.failure().message;
  }
  return "failed no such question";
}

}  // namespace

int run_doctor_peer() {
  for (std::string line; std::getline(std::cin, line);) {
    fmt::print("{}{}\n", kAnswerMark, visible(answer_to(line)));
    std::fflush(stdout);
  }
  return 0;
}

}}  // namespace c10d::v0
