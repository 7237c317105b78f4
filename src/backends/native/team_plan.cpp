// SPDX-License-Identifier: BSD-3-Clause
// The start of a group: what its ranks can do for each other is measured, and rank 0's plan handed
// to all.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "c10d/env.h"
#include "src/backends/native/cma.h"
#include "src/backends/native/team.h"
#include "src/backends/native/tuning.h"
#include "src/core/log.h"

namespace c10d::inline v0::native {
namespace {

using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::milliseconds(10);
constexpr int kFurthestPinged = 7;

// The shortest of a few batches of round trips, in microseconds; nothing when the peer does not
// answer before `until`.
std::optional<double> round_trip_us(PlanLines& plan, RankLines& peer, int rank,
                                    steady_clock::time_point until) {
  constexpr int kBatches = 4, kTrips = 50;
  std::optional<double> best;
  std::uint32_t number = static_cast<std::uint32_t>(rank) << 24;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = steady_clock::now();
    for (int trip = 0; trip < kTrips; ++trip) {
      plan.ping.store(++number, std::memory_order_release);
      for (int i = 1; peer.echo.load(std::memory_order_acquire) != number; ++i)
        if (i % 256 == 0 && steady_clock::now() > until) return best;
    }
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - start;
    best = std::min(best.value_or(took.count() / kTrips), took.count() / kTrips);
  }
  return best;
}

}  // namespace

bool Team::reads_every_peer() const {
  for (int peer = 0; peer < size(); ++peer) {
    const RankLines& theirs = lines(peer);
    std::uint64_t nonce = 0;
    if (read_process(theirs.pid, theirs.nonce_address, &nonce, sizeof nonce) != 0 ||
        nonce != theirs.nonce)
      return false;
  }
  return true;
}

void Team::make_plan(Deadline deadline) {
  PlanLines& shared = layout_.plan(base_);
  Machine machine{.ranks = size(), .crowded = crowded(), .cma = true};
  for (int peer = 0; peer < size(); ++peer) {
    const RankLines& theirs = lines(peer);
    wait_for_peer(peer, "did not finish joining the group", deadline,
                  [&] { return theirs.reads_all.load(std::memory_order_acquire) != 0; });
    machine.cma &= theirs.reads_all.load(std::memory_order_acquire) == 1;
  }
  if (!machine.crowded) {
    const auto until = steady_clock::now() + kPatience;
    std::vector<double> trips;
    for (int peer = 1; peer < std::min(size(), kFurthestPinged + 1); ++peer)
      if (const auto us = round_trip_us(shared, lines(peer), peer, until)) trips.push_back(*us);
    std::sort(trips.begin(), trips.end());
    const double trip_us = trips.empty() ? 2 * machine.hop_us : trips[trips.size() / 2];
    machine.far = trip_us * 1000 > kFarNs;
    machine.hop_us = std::clamp(trip_us / 2, 0.02, 5.0);
  }
  std::vector<std::string> warnings;
  const std::string key = fingerprint(machine);
  prices_.emplace(machine, load_tuning(tuning_path(key), key, warnings));
  plan_ = Plan(*prices_, env("C10D_NATIVE_PLAN").value_or(""), warnings);
  for (const std::string& warning : warnings) log(LogLevel::warn, "native: {}", warning);
  shared.machine = machine;
  shared.plan = plan_;
  shared.ready.store(1, std::memory_order_release);
  lines(0).bell.ring();
}

void Team::agree_on_plan(Deadline deadline) {
  if (rank() == 0) return make_plan(deadline);
  PlanLines& shared = layout_.plan(base_);
  RankLines& own = lines(rank());
  std::uint32_t echoed = 0;
  wait_for_peer(0, "did not say how the group's ops shall run", deadline, [&] {
    const std::uint32_t ping = shared.ping.load(std::memory_order_acquire);
    if (ping != echoed && ping >> 24 == static_cast<std::uint32_t>(rank())) {
      echoed = ping;
      own.echo.store(ping, std::memory_order_release);
    }
    return shared.ready.load(std::memory_order_acquire) != 0;
  });
  plan_ = shared.plan;
  prices_.emplace(shared.machine);
  if (!plan_.valid())
    throw_failure({.code = Code::corrupt,
                   .message = "rank 0's plan is damaged: something overwrote the shared memory",
                   .rank = 0,
                   .group = context_.group});
}

}  // namespace c10d::inline v0::native
