// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/link.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace c10d::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kStreamBytes = std::size_t{1} << 20;
constexpr std::array<std::size_t, 3> kStreams = {1, 2, 4};  // at once
constexpr int kMostRounds = 200;
constexpr std::chrono::milliseconds kFlow{100};  // of one measurement

double microseconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
}

// The end that listens says with each byte whether another round follows.
double round_trip(End end, const Connection& link) {
  std::vector<double> times;
  const auto until = Clock::now() + kFlow;
  for (char more = 1; more != 0;) {
    const auto start = Clock::now();
    if (end == End::listens) {
      more = times.size() + 1 < kMostRounds && start < until ? 1 : 0;
      link.send({&more, 1});
    }
    char byte = 0;
    link.receive(&byte, 1);
    if (end == End::connects) link.send({&(more = byte), 1});
    times.push_back(microseconds_between(start, Clock::now()));
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

// Each chunk says whether another one follows.
void send_for_a_while(const Connection& link) {
  std::string chunk(kStreamBytes, '\1');
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
  std::vector<char> chunk(kStreamBytes);
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

LinkRates measure_link(End end, Store& store, const std::string& address, Duration timeout) {
  const Deadline deadline = Clock::now() + timeout;
  const bool listens = end == End::listens;
  const std::vector<Connection> streams =
      connect_hosts(end, store, "link", address, kStreams.back(), deadline);
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
