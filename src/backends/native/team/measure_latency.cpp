// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>

#include "src/backends/native/team/team.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongest{10};
constexpr std::uint64_t kTurns = 40;  // of one pair
constexpr std::uint64_t kEnd = 0xffff;

// Pairs one after the other, in the same order on every rank. What a rank shows in its echo only
// grows: pair << 16 | turn.
class Echoes {
 public:
  Echoes(Team& team, Deadline deadline) : team_(team), policy_(team.policy()), deadline_(deadline) {
    policy_.pauses = 0;  // a gap between polls would be part of the figure
  }

  bool show(std::uint64_t pair, std::uint64_t turn) {
    team_.lines(team_.rank()).echo.store(pair << 16 | turn, std::memory_order_release);
    return true;
  }
  // Waits until `peer` has come to this turn or further; false: the group broke.
  bool await(int peer, std::uint64_t pair, std::uint64_t turn) {
    Doorbell& own = team_.lines(team_.rank()).doorbell;
    return wait_until({policy_, team_.control(), deadline_, &own}, team_.lines(peer).doorbell,
                      [&] { return seen(peer) >= (pair << 16 | turn); }) == WaitResult::ready;
  }
  std::uint64_t seen(int peer) const {
    return team_.lines(peer).echo.load(std::memory_order_acquire);
  }

  bool lead(int peer, std::uint64_t pair, steady_clock::duration limit) {
    auto best = steady_clock::duration::max();
    const auto start = steady_clock::now();
    auto before = start;
    for (std::uint64_t turn = 1; turn <= kTurns && before - start < limit; ++turn) {
      show(pair, turn);
      if (!await(peer, pair, turn)) return false;
      const auto now = steady_clock::now();
      best = std::min(best, now - before);
      before = now;
    }
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(best).count();
    team_.lines(team_.rank())
        .round_trips[static_cast<std::size_t>(peer)]
        .store(static_cast<std::uint32_t>(std::min<std::int64_t>(ns, kNs)),
               std::memory_order_relaxed);
    return show(pair, kEnd);
  }
  bool follow(int peer, std::uint64_t pair) {
    for (std::uint64_t turn = 1;; ++turn) {
      if (!await(peer, pair, turn)) return false;
      if (seen(peer) != (pair << 16 | turn)) return true;
      show(pair, turn);
    }
  }

 private:
  static constexpr std::int64_t kNs = std::numeric_limits<std::uint32_t>::max();
  Team& team_;
  WaitPolicy policy_;
  const Deadline deadline_;
};

bool measure_pairs(Team& team, Echoes& echoes, std::uint64_t& pair) {
  const int size = team.size();
  const auto limit = steady_clock::duration(kLongest) / (size * (size - 1) / 2);
  for (int a = 0; a < size; ++a)
    for (int b = a + 1; b < size; ++b) {
      ++pair;
      if (team.rank() == a && !echoes.lead(b, pair, limit)) return false;
      if (team.rank() == b && !echoes.follow(a, pair)) return false;
    }
  return true;
}

}  // namespace

RoundTrips measure_round_trips(Team& team, Deadline deadline) {
  const int size = team.size();
  if (size < 2 || size > kMeasuredRanks || team.oversubscribed()) return {};
  Echoes echoes(team, deadline);
  std::uint64_t pair = 0;
  if (!measure_pairs(team, echoes, pair)) return {};
  echoes.show(pair + 1, 0);
  team.lines(team.rank()).doorbell.ring();
  for (int peer = 0; peer < size; ++peer)
    if (!echoes.await(peer, pair + 1, 0)) return {};
  const auto n = static_cast<std::size_t>(size);
  RoundTrips trips{size, std::vector<std::uint32_t>(n * n)};
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a + 1; b < n; ++b)
      trips.ns[a * n + b] = trips.ns[b * n + a] =
          team.lines(static_cast<int>(a)).round_trips[b].load(std::memory_order_relaxed);
  return trips;
}

}}}  // namespace c10d::v0::native
