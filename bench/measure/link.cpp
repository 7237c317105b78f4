// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <future>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/error.h"
#include "src/net/address.h"
#include "src/net/socket.h"
#include "src/net/token.h"

namespace c10d::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr int kMostRounds = 200;
constexpr std::chrono::milliseconds kFlow{100};  // of one measurement
constexpr std::chrono::seconds kHandshake{1};

[[noreturn]] void fail(const std::string& what) {
  throw_failure(
      {Code::unreachable, fmt::format("the connection between two hosts for %ceil: {}", what)});
}

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Whole messages, all before one deadline.
class Connection {
 public:
  Connection(Fd socket, Deadline deadline) : socket_(std::move(socket)), deadline_(deadline) {}

  void send(std::string_view bytes) const {
    if (!send_all(socket_.get(), bytes, deadline_)) fail("the other end is gone, or too slow");
  }
  void receive(char* data, std::size_t bytes) const {
    while (bytes > 0) {
      const ssize_t got = recv(socket_.get(), data, bytes, MSG_DONTWAIT);
      if (got > 0) {
        data += got;
        bytes -= static_cast<std::size_t>(got);
      } else if (got == 0) {
        fail("the other end is gone");
      } else if (errno == EAGAIN) {
        if (!wait_for(socket_.get(), POLLIN, deadline_)) fail("the other end is silent");
      } else if (errno != EINTR) {
        fail(error_text(errno));
      }
    }
  }
  // What an end that has proved itself gets.
  void extend(Deadline deadline) noexcept { deadline_ = deadline; }

 private:
  Fd socket_;
  Deadline deadline_;
};

Connection accept_one(Store& store, const std::string& name, Deadline deadline) {
  const Fd listener = listen_tcp(resolve(name, 0).front());
  const std::string secret = random_bytes(kSecretBytes);
  store.multi_set(
      std::vector<std::string>{"link/port", "link/secret"},
      std::vector<std::string>{std::to_string(local_address(listener.get()).port()), secret});
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
    connection.extend(deadline);
    return connection;
  }
  fail("nobody of this job came to " + name);
}

Connection connect_one(Store& store, const std::string& name, Deadline deadline) {
  const auto left = std::chrono::duration_cast<Duration>(deadline - Clock::now());
  const auto facts = store.multi_get({"link/port", "link/secret"}, left);
  std::uint16_t port = 0;
  std::from_chars(facts[0].data(), facts[0].data() + facts[0].size(), port);
  std::string problem;
  Fd socket = connect_tcp(resolve(name, port), deadline, problem);
  if (!socket) fail(problem);
  Connection connection(std::move(socket), deadline);
  connection.send(facts[1]);
  return connection;
}

// The end that listens says with each byte whether another round follows.
double round_trip(LinkEnd end, const Connection& link) {
  std::vector<double> times;
  const auto until = Clock::now() + kFlow;
  for (char more = 1; more != 0;) {
    const auto start = Clock::now();
    if (end == LinkEnd::listens) {
      more = times.size() + 1 < kMostRounds && start < until ? 1 : 0;
      link.send({&more, 1});
    }
    char byte = 0;
    link.receive(&byte, 1);
    if (end == LinkEnd::connects) link.send({&(more = byte), 1});
    times.push_back(microseconds_since(start));
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

// Each chunk says whether another one follows.
void send_for_a_while(const Connection& link) {
  std::string chunk(kChunk, '\1');
  for (const auto until = Clock::now() + kFlow; chunk[0] != 0;) {
    if (Clock::now() >= until) chunk[0] = 0;
    link.send(chunk);
  }
}

// GB/s behind the first chunk.
double receive_all(const Connection& link) {
  std::vector<char> chunk(kChunk);
  link.receive(chunk.data(), chunk.size());
  const auto start = Clock::now();
  std::size_t bytes = 0;
  while (chunk[0] != 0) {
    link.receive(chunk.data(), chunk.size());
    bytes += chunk.size();
  }
  return static_cast<double>(bytes) * 1e-3 / microseconds_since(start);
}

}  // namespace

LinkRates measure_link(LinkEnd end, Store& store, const std::string& address, Duration timeout) {
  const Deadline deadline = Clock::now() + timeout;
  const Connection link = end == LinkEnd::listens ? accept_one(store, address, deadline)
                                                  : connect_one(store, address, deadline);
  LinkRates rates;
  rates.round_trip_us = round_trip(end, link);
  if (end == LinkEnd::listens)
    rates.one_way = receive_all(link);
  else
    send_for_a_while(link);
  std::future<void> sent = std::async(std::launch::async, [&] { send_for_a_while(link); });
  rates.both_ways = receive_all(link);
  sent.get();
  return rates;
}

}  // namespace c10d::bench
