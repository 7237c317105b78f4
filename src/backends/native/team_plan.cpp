// SPDX-License-Identifier: BSD-3-Clause
// The start of a group: what its ranks can do for each other is measured, and rank 0's plan handed
// to all.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "c10d/env.h"
#include "src/backends/native/peer_memory.h"
#include "src/backends/native/team.h"
#include "src/backends/native/tuning.h"
#include "src/core/log.h"

namespace c10d::inline v0::native {
namespace {

using std::chrono::steady_clock;

constexpr auto kMeasuring = std::chrono::milliseconds(10);
constexpr std::size_t kBlock = std::size_t{64} << 10;

bool answers(const RankLines& peer, std::uint32_t number, steady_clock::time_point until) {
  for (int i = 1; peer.answer.load(std::memory_order_acquire) != number; ++i)
    if (i % 256 == 0 && steady_clock::now() > until) return false;
  return true;
}

// Microseconds for a block from rank 0 to a peer through rank 0's staging, which stays zero.
// Nothing when a peer did not answer in time.
std::optional<double> staging_us(PlanLines& plan, Bell& bell, const RankLines& peer,
                                 std::byte* staging, StorePolicy policy,
                                 steady_clock::time_point until) {
  constexpr std::uint32_t kTrips = 8;
  const std::vector<std::byte> zeros(kBlock);
  const std::uint32_t first = 1u << 24 | (static_cast<std::uint32_t>(policy) << 8);
  std::optional<double> best;
  for (std::uint32_t trip = 0; trip < kTrips; ++trip) {
    const auto start = steady_clock::now();
    copy(staging, zeros.data(), kBlock, policy);
    stream_fence();
    plan.ping.store(first + trip, std::memory_order_release);
    bell.ring();
    if (!answers(peer, first + trip, until)) return {};
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - start;
    best = std::min(best.value_or(took.count()), took.count());
  }
  return best;
}

}  // namespace

bool Team::reads_every_peer() const {
  for (int peer = 0; peer < size(); ++peer)
    if (!PeerMemory(lines(peer).identity).reachable()) return false;
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
    const auto until = steady_clock::now() + kMeasuring;
    std::vector<std::uint32_t> trips;
    for (int peer = 1; peer < size() && !trips_.ns.empty(); ++peer)
      if (trips_.between(0, peer) <= kBelievedNs) trips.push_back(trips_.between(0, peer));
    std::sort(trips.begin(), trips.end());
    const double trip_us = trips.empty() ? 2 * machine.hop_us : trips[trips.size() / 2] * 1e-3;
    machine.far = trip_us * 1000 > kFarNs;
    machine.hop_us = std::clamp(trip_us / 2, 0.02, 5.0);
    const auto measure = [&](StorePolicy policy) {
      return staging_us(shared, lines(0).bell, lines(1), layout_.staging(base_, 0, 0), policy,
                        until);
    };
    // Both or none: one beside a default would say more of the scheduler than of the memory.
    const auto temporal = measure(StorePolicy::temporal);
    const auto streaming = temporal ? measure(StorePolicy::streaming) : temporal;
    if (streaming) {
      const auto per_mib = [](double us) {
        return std::clamp(us * static_cast<double>(1 << 20) / kBlock, 10.0, 2000.0);
      };
      machine.stage_us[static_cast<std::size_t>(StorePolicy::temporal)] = per_mib(*temporal);
      machine.stage_us[static_cast<std::size_t>(StorePolicy::streaming)] = per_mib(*streaming);
    }
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
      copy(block.data(), layout_.staging(base_, 0, 0), kBlock, StorePolicy::temporal);
      own.answer.store(ping, std::memory_order_release);
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
