// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/link.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bench/meeting/meeting.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr int kRounds = 200;
constexpr std::int64_t kFlow = 100'000'000;  // ns of one measurement

[[noreturn]] void fail(const std::string& what) {
  throw_failure(
      {Code::unreachable, fmt::format("the benchmark's own connection between two hosts: {}: {}",
                                      what, std::strerror(errno))});
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

class Address {
 public:
  Address(const std::string& name, const std::string& port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(name.c_str(), port.c_str(), &hints, &found); error != 0)
      throw_failure({Code::unreachable, fmt::format("{}: {}", name, gai_strerror(error))});
    found_.reset(found);
  }
  const addrinfo& operator*() const noexcept { return *found_; }
  Socket socket() const {
    Socket made(::socket(found_->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (made.fd() < 0) fail("socket");
    return made;
  }

 private:
  struct Free {
    void operator()(addrinfo* info) const noexcept { freeaddrinfo(info); }
  };
  std::unique_ptr<addrinfo, Free> found_;
};

// Both ends write and read whole messages, each within the timeout.
class Connection {
 public:
  Connection(Socket socket, Duration timeout) : socket_(std::move(socket)) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout).count();
    const timeval limit{std::max<time_t>(1, seconds), 0};
    const int on = 1;
    setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket_.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  void write(const void* data, std::size_t bytes) const {
    for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t done = send(socket_.fd(), at, bytes, MSG_NOSIGNAL);
      if (done < 0) fail("send");
      at += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }
  void read(void* data, std::size_t bytes) const {
    for (auto* at = static_cast<char*>(data); bytes > 0;) {
      const ssize_t done = recv(socket_.fd(), at, bytes, 0);
      if (done == 0) errno = ECONNRESET;
      if (done <= 0) fail("recv");
      at += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }

 private:
  Socket socket_;
};

std::string make_secret() {
  std::string secret(kSecretBytes, '\0');
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
    fail("getrandom");
  return secret;
}

bool has_secret(const Connection& connection, const std::string& secret) {
  std::string theirs(secret.size(), '\0');
  connection.read(theirs.data(), theirs.size());
  unsigned char difference = 0;
  for (std::size_t i = 0; i < secret.size(); ++i)
    difference |= static_cast<unsigned char>(theirs[i] ^ secret[i]);
  return difference == 0;
}

Connection accept_one(Store& store, const std::string& name, Duration timeout) {
  const Address address(name, "0");
  const Socket listener = address.socket();
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (bind(listener.fd(), (*address).ai_addr, (*address).ai_addrlen) != 0 ||
      listen(listener.fd(), 1) != 0 ||
      getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    fail("listen on " + name);
  const in_port_t port = bound.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  const std::string secret = make_secret();
  store.multi_set(std::vector<std::string>{"link/port", "link/secret"},
                  std::vector<std::string>{std::to_string(ntohs(port)), secret});
  const std::int64_t deadline = Meeting::now() + timeout.count();
  for (;;) {
    const std::int64_t left = (deadline - Meeting::now()) / 1'000'000;
    pollfd waiting{listener.fd(), POLLIN, 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) == 0) {
      errno = ETIMEDOUT;
      fail("nobody came to " + name);
    }
    Socket stranger(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (stranger.fd() < 0) continue;
    try {
      Connection connection(std::move(stranger), std::chrono::seconds(1));
      if (has_secret(connection, secret)) return connection;
    } catch (const DistError&) {  // said nothing, or went: not of this job
    }
  }
}

Connection connect_one(Store& store, const std::string& name, Duration timeout) {
  const auto facts = store.multi_get({"link/port", "link/secret"}, timeout);
  const Address address(name, facts[0]);
  Socket socket = address.socket();
  const auto limit = timeval{std::chrono::duration_cast<std::chrono::seconds>(timeout).count(), 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(socket.fd(), (*address).ai_addr, (*address).ai_addrlen) != 0)
    fail("connect to " + name);
  Connection connection(std::move(socket), timeout);
  connection.write(facts[1].data(), facts[1].size());
  return connection;
}

double round_trip(LinkEnd end, const Connection& link) {
  std::vector<std::int64_t> times;
  char byte = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t start = Meeting::now();
    if (end == LinkEnd::listens) link.write(&byte, 1);
    link.read(&byte, 1);
    if (end == LinkEnd::connects) link.write(&byte, 1);
    times.push_back(Meeting::now() - start);
  }
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  return static_cast<double>(times[kRounds / 2]) * 1e-3;
}

// Chunks begin with whether another one follows.
void send_for(const Connection& link, std::int64_t duration) {
  std::vector<char> chunk(kChunk);
  for (const std::int64_t start = Meeting::now(); chunk[0] == 0;) {
    chunk[0] = Meeting::now() - start >= duration ? 1 : 0;
    link.write(chunk.data(), chunk.size());
  }
}

// GB/s between the first chunk and the last one.
double receive(const Connection& link) {
  std::vector<char> chunk(kChunk);
  link.read(chunk.data(), chunk.size());
  const std::int64_t start = Meeting::now();
  std::size_t bytes = 0;
  while (chunk[0] == 0) {
    link.read(chunk.data(), chunk.size());
    bytes += chunk.size();
  }
  return static_cast<double>(bytes) / static_cast<double>(Meeting::now() - start);
}

double both_ways(const Connection& link) {
  std::exception_ptr problem;
  std::thread sender([&] {
    try {
      send_for(link, kFlow);
    } catch (...) {
      problem = std::current_exception();
    }
  });
  double rate = 0;
  try {
    rate = receive(link);
  } catch (...) {
    problem = std::current_exception();
  }
  sender.join();
  if (problem) std::rethrow_exception(problem);
  return rate;
}

}  // namespace

LinkRates measure_link(LinkEnd end, Store& store, const std::string& address, Duration timeout) {
  const Connection link = end == LinkEnd::listens ? accept_one(store, address, timeout)
                                                  : connect_one(store, address, timeout);
  LinkRates rates;
  rates.round_trip_us = round_trip(end, link);
  if (end == LinkEnd::listens)
    rates.one_way = receive(link);
  else
    send_for(link, kFlow);
  rates.both_ways = both_ways(link);
  return rates;
}

}  // namespace c10d::bench
