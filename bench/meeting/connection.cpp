// SPDX-License-Identifier: BSD-3-Clause
#include "bench/meeting/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <utility>

#include "c10d/error.h"
#include "src/net/address.h"
#include "src/net/token.h"

namespace c10d::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSecretBytes = 32;
constexpr std::chrono::seconds kHandshake{1};

[[noreturn]] void fail(const std::string& what) {
  throw_failure({Code::unreachable,
                 fmt::format("a connection of the benchmark between two hosts: {}", what)});
}

std::vector<Connection> accept_all(Store& store, const std::string& key, const std::string& name,
                                   std::size_t count, Deadline deadline) {
  const Fd listener = listen_tcp(resolve(name, 0).front());
  const std::string secret = random_bytes(kSecretBytes);
  store.multi_set(
      std::vector<std::string>{key + "/port", key + "/secret"},
      std::vector<std::string>{std::to_string(local_address(listener.get()).port()), secret});
  std::vector<Connection> connections;
  while (wait_for(listener.get(), POLLIN, deadline)) {
    Fd stranger(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!stranger && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)) continue;
    if (!stranger) fail(error_text(errno));
    tune_tcp(stranger.get());
    Connection connection(std::move(stranger),
                          std::min<Deadline>(deadline, Clock::now() + kHandshake));
    try {
      std::string theirs(secret.size(), '\0');
      connection.receive(theirs.data(), theirs.size());
      if (!equal_secrets(theirs, secret)) continue;
    } catch (const DistError&) {
      continue;  // it said nothing, or went: not of this job
    }
    connection.set_deadline(deadline);
    connections.push_back(std::move(connection));
    if (connections.size() == count) return connections;
  }
  fail("nobody of this job came to " + name);
}

// One after the other, so that the other end accepts them in this order.
std::vector<Connection> connect_all(Store& store, const std::string& key, const std::string& name,
                                    std::size_t count, Deadline deadline) {
  const auto left = std::chrono::duration_cast<Duration>(deadline - Clock::now());
  const auto facts = store.multi_get({key + "/port", key + "/secret"}, left);
  std::uint16_t port = 0;
  std::from_chars(facts[0].data(), facts[0].data() + facts[0].size(), port);
  std::vector<Connection> connections;
  while (connections.size() < count) {
    std::string problem;
    Fd socket = connect_tcp(resolve(name, port), deadline, problem);
    if (!socket) fail(problem);
    connections.emplace_back(std::move(socket), deadline);
    connections.back().send(facts[1]);
  }
  return connections;
}

}  // namespace

void Connection::send(std::string_view bytes) const {
  if (!send_all(socket_.get(), bytes, deadline_)) fail("the other end is gone, or too slow");
}

void Connection::receive(char* data, std::size_t bytes, std::chrono::nanoseconds awake) const {
  const Deadline sleeps_at = Clock::now() + awake;
  while (bytes > 0) {
    const ssize_t got = recv(socket_.get(), data, bytes, MSG_DONTWAIT);
    if (got > 0) {
      data += got;
      bytes -= static_cast<std::size_t>(got);
    } else if (got == 0) {
      fail("the other end is gone");
    } else if (errno == EAGAIN) {
      if (awake.count() > 0 && Clock::now() < sleeps_at) continue;
      if (!wait_for(socket_.get(), POLLIN, deadline_)) fail("the other end is silent");
    } else if (errno != EINTR) {
      fail(error_text(errno));
    }
  }
}

std::vector<Connection> connect_hosts(End end, Store& store, const std::string& key,
                                      const std::string& address, std::size_t count,
                                      Deadline deadline) {
  return end == End::listens ? accept_all(store, key, address, count, deadline)
                             : connect_all(store, key, address, count, deadline);
}

}  // namespace c10d::bench
