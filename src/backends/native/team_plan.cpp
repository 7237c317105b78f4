// SPDX-License-Identifier: BSD-3-Clause
// The start of a group: what its ranks can do for each other is measured, and rank 0's plan handed
// to all.
#include <algorithm>
#include <chrono>
#include <optional>
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

// A peer that is pinged with this bit reads a block of rank 0's staging before it answers.
constexpr std::uint32_t kReadBlock = 1u << 23;
constexpr std::size_t kBlock = std::size_t{64} << 10;

bool answers(const RankLines& peer, std::uint32_t number, steady_clock::time_point until) {
  for (int i = 1; peer.echo.load(std::memory_order_acquire) != number; ++i)
    if (i % 256 == 0 && steady_clock::now() > until) return false;
  return true;
}

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
      if (!answers(peer, number, until)) return best;
    }
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - start;
    best = std::min(best.value_or(took.count() / kTrips), took.count() / kTrips);
  }
  return best;
}

// Microseconds for a block from rank 0 to a peer through rank 0's staging, which stays zero.
std::optional<double> staging_us(PlanLines& plan, const RankLines& peer, std::byte* staging,
                                 StorePolicy policy, steady_clock::time_point until) {
  constexpr std::uint32_t kTrips = 8;
  const std::vector<std::byte> zeros(kBlock);
  const std::uint32_t first = 1u << 24 | kReadBlock | (static_cast<std::uint32_t>(policy) << 8);
  std::optional<double> best;
  for (std::uint32_t trip = 0; trip < kTrips; ++trip) {
    const auto start = steady_clock::now();
    copy(staging, zeros.data(), kBlock, policy);
    stream_fence();
    plan.ping.store(first + trip, std::memory_order_release);
    if (!answers(peer, first + trip, until)) return best;
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - start;
    best = std::min(best.value_or(took.count()), took.count());
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
    for (const StorePolicy policy : {StorePolicy::temporal, StorePolicy::streaming})
      if (const auto us = staging_us(shared, lines(1), layout_.staging(base_, 0, 0), policy, until))
        machine.stage_us[static_cast<std::size_t>(policy)] =
            std::clamp(*us * static_cast<double>(1 << 20) / kBlock, 10.0, 2000.0);
  }
  std::vector<std::string> warnings;
  const std::string key = fingerprint(machine);
  prices_ = Prices(machine, load_tuning(tuning_path(key), key, warnings));
  plan_ = Plan(prices_, env("C10D_NATIVE_PLAN").value_or(""), warnings);
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
  std::vector<std::byte> block(kBlock);
  wait_for_peer(0, "did not say how the group's ops shall run", deadline, [&] {
    const std::uint32_t ping = shared.ping.load(std::memory_order_acquire);
    if (ping != echoed && ping >> 24 == static_cast<std::uint32_t>(rank())) {
      echoed = ping;
      if ((ping & kReadBlock) != 0)
        copy(block.data(), layout_.staging(base_, 0, 0), kBlock, StorePolicy::temporal);
      own.echo.store(ping, std::memory_order_release);
    }
    return shared.ready.load(std::memory_order_acquire) != 0;
  });
  plan_ = shared.plan;
  prices_ = Prices(shared.machine);
  if (!plan_.valid())
    throw_failure({.code = Code::corrupt,
                   .message = "rank 0's plan is damaged: something overwrote the shared memory",
                   .rank = 0,
                   .group = context_.group});
}

}  // namespace c10d::inline v0::native
