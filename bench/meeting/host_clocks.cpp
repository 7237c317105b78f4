// SPDX-License-Identifier: BSD-3-Clause
#include "bench/meeting/host_clocks.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "bench/meeting/meeting.h"

namespace c10d::bench {
namespace {

constexpr int kRounds = 64;
// A sleep in between costs more than a round trip.
constexpr std::chrono::microseconds kAwake{200};

// Answers each byte with the time.
void serve(const Connection& other) {
  for (int round = 0; round < kRounds; ++round) {
    char byte = 0;
    other.receive(&byte, 1, kAwake);
    const std::int64_t time = Meeting::now();
    other.send({reinterpret_cast<const char*>(&time), sizeof time});
  }
}

ClockOffset ask(const Connection& root) {
  ClockOffset best{.error = std::numeric_limits<std::int64_t>::max()};
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t theirs = 0;
    const std::int64_t before = Meeting::now();
    root.send({"?", 1});
    root.receive(reinterpret_cast<char*>(&theirs), sizeof theirs, kAwake);
    const std::int64_t after = Meeting::now();
    const std::int64_t error = (after - before) / 2 + 1;
    if (error < best.error) best = {before + (after - before) / 2 - theirs, error};
  }
  return best;
}

}  // namespace

HostClocks::HostClocks(Store& store, const std::vector<int>& firsts, int rank,
                       const std::string& address, Duration timeout)
    : rank_(rank), timeout_(timeout) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  for (const int first : firsts) {
    if (first == 0 || (rank != 0 && rank != first)) continue;
    const End end = rank == 0 ? End::listens : End::connects;
    connections_.emplace(first, std::move(connect_hosts(end, store, fmt::format("clock/{}", first),
                                                        address, 1, deadline)
                                              .front()));
  }
}

ClockOffset HostClocks::measure() {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  ClockOffset own;
  for (auto& [other, connection] : connections_) {
    connection.set_deadline(deadline);
    if (rank_ == 0)
      serve(connection);
    else
      own = ask(connection);
  }
  return own;
}

}  // namespace c10d::bench
