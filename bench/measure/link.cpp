// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <future>
#include <span>
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
constexpr std::array<std::size_t, 3> kStreams = {1, 2, 4};  // at once
constexpr int kMostRounds = 200;
constexpr std::chrono::milliseconds kFlow{100};  // of one measurement
constexpr std::chrono::seconds kHandshake{1};

[[noreturn]] void fail(const std::string& what) {
  throw_failure(
      {Code::unreachable, fmt::format("the connection between two hosts for %ceil: {}", what)});
}

double microseconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
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

using Streams = std::vector<Connection>;

Streams accept_all(Store& store, const std::string& name, Deadline deadline) {
  const Fd listener = listen_tcp(resolve(name, 0).front());
  const std::string secret = random_bytes(kSecretBytes);
  store.multi_set(
      std::vector<std::string>{"link/port", "link/secret"},
      std::vector<std::string>{std::to_string(local_address(listener.get()).port()), secret});
  Streams streams;
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
    streams.push_back(std::move(connection));
    if (streams.size() == kStreams.back()) return streams;
  }
  fail("nobody of this job came to " + name);
}

// One after the other, so that the other end accepts them in this order.
Streams connect_all(Store& store, const std::string& name, Deadline deadline) {
  const auto left = std::chrono::duration_cast<Duration>(deadline - Clock::now());
  const auto facts = store.multi_get({"link/port", "link/secret"}, left);
  std::uint16_t port = 0;
  std::from_chars(facts[0].data(), facts[0].data() + facts[0].size(), port);
  Streams streams;
  while (streams.size() < kStreams.back()) {
    std::string problem;
    Fd socket = connect_tcp(resolve(name, port), deadline, problem);
    if (!socket) fail(problem);
    streams.emplace_back(std::move(socket), deadline);
    streams.back().send(facts[1]);
  }
  return streams;
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
    times.push_back(microseconds_between(start, Clock::now()));
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

// What came behind the first chunk, and when.
struct Received {
  std::size_t bytes = 0;
  Clock::time_point start, end;
};
Received receive_all(const Connection& link) {
  std::vector<char> chunk(kChunk);
  link.receive(chunk.data(), chunk.size());
  Received all{.start = Clock::now()};
  while (chunk[0] != 0) {
    link.receive(chunk.data(), chunk.size());
    all.bytes += chunk.size();
  }
  all.end = Clock::now();
  return all;
}

// All at once; the GB/s that came to this end together, 0 where it does not receive.
double flow(std::span<const Connection> streams, bool sends, bool receives) {
  std::vector<std::future<void>> senders;
  std::vector<std::future<Received>> receivers;
  for (const Connection& link : streams) {
    if (sends)
      senders.push_back(std::async(std::launch::async, [&link] { send_for_a_while(link); }));
    if (receives)
      receivers.push_back(std::async(std::launch::async, [&link] { return receive_all(link); }));
  }
  for (std::future<void>& sender : senders) sender.get();
  Received all;
  for (std::size_t i = 0; i < receivers.size(); ++i) {
    const Received one = receivers[i].get();
    all.bytes += one.bytes;
    all.start = i == 0 ? one.start : std::min(all.start, one.start);
    all.end = std::max(all.end, one.end);
  }
  return all.bytes == 0
             ? 0
             : static_cast<double>(all.bytes) * 1e-3 / microseconds_between(all.start, all.end);
}

}  // namespace

LinkRates measure_link(LinkEnd end, Store& store, const std::string& address, Duration timeout) {
  const Deadline deadline = Clock::now() + timeout;
  const bool listens = end == LinkEnd::listens;
  const Streams streams =
      listens ? accept_all(store, address, deadline) : connect_all(store, address, deadline);
  LinkRates rates;
  rates.round_trip_us = round_trip(end, streams.front());
  for (const std::size_t count : kStreams) {
    const std::span<const Connection> some = std::span(streams).first(count);
    const double one_way = flow(some, !listens, listens);
    rates.flows.push_back({static_cast<int>(count), one_way, flow(some, true, true)});
  }
  return rates;
}

}  // namespace c10d::bench
