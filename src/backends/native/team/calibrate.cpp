// SPDX-License-Identifier: BSD-3-Clause
// The start of a group: rank 0 measures how fast data moves between ranks, makes the plan and
// publishes it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "c10d/env.h"
#include "src/backends/common/failures.h"
#include "src/backends/native/memory/cma.h"
#include "src/backends/native/plan/tuning_file.h"
#include "src/backends/native/team/team.h"
#include "src/base/log.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

constexpr auto kMeasuring = std::chrono::milliseconds(20);
constexpr std::size_t kBlock = std::size_t{256} << 10;

double micros_since(steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - start).count();
}

// By StorePolicy, microseconds to copy a MiB where more is in use than a core's caches hold. It
// depends on the host and not on the group: the first group of the process measures it.
const std::array<double, 2>& copy_us() {
  static const std::array<double, 2> measured = [] {
    constexpr std::size_t kCopied = std::size_t{2} << 20;
    constexpr int kTrips = 3;
    std::vector<std::byte> to(kCopied);
    const std::vector<std::byte> from(kCopied);
    std::array<double, 2> result{};
    for (const StorePolicy policy : {StorePolicy::temporal, StorePolicy::streaming}) {
      double best = 1e9;
      for (int trip = 0; trip < kTrips; ++trip) {
        const auto start = steady_clock::now();
        copy(to.data(), from.data(), to.size(), policy);
        stream_fence();
        best = std::min(best, micros_since(start));
      }
      result[static_cast<std::size_t>(policy)] =
          std::clamp(best * (1 << 20) / static_cast<double>(kCopied), 5.0, 1000.0);
    }
    return result;
  }();
  return measured;
}

// What rank 0 asks of rank 1 with PlanLines::ping: kind << 16 | number, and the number is never 0.
enum class Ping : std::uint32_t { temporal, streaming, cma };
Ping kind_of(std::uint32_t ping) noexcept { return static_cast<Ping>(ping >> 16); }

// Rank 0's end: the least time of a few blocks on their way between the two ranks.
class PathMeter {
 public:
  PathMeter(PlanLines& plan, Doorbell& doorbell, const RankLines& peer, std::byte* staging)
      : plan_(plan), doorbell_(doorbell), peer_(peer), staging_(staging) {}

  // Microseconds per MiB. Nothing when the peer did not answer in time, or cannot be read.
  std::optional<double> per_mib(Ping kind) {
    constexpr int kTrips = 12;
    std::optional<double> best;
    for (int trip = 0; trip < kTrips; ++trip) {
      const auto us = kind == Ping::cma ? read() : stage(kind);
      if (!us) return {};
      best = std::min(best.value_or(*us), *us);
    }
    return std::clamp(*best * static_cast<double>(1 << 20) / kBlock, 10.0, 2000.0);
  }

 private:
  bool ping(Ping kind) {
    const std::uint32_t ping = static_cast<std::uint32_t>(kind) << 16 | ++number_;
    plan_.ping.store(ping, std::memory_order_release);
    doorbell_.ring();
    for (int i = 1; peer_.answer.load(std::memory_order_acquire) != ping; ++i)
      if (i % 256 == 0 && steady_clock::now() > until_) return false;
    return true;
  }
  // Through the staging, which stays zero.
  std::optional<double> stage(Ping kind) {
    const auto start = steady_clock::now();
    copy(staging_, block_.data(), kBlock,
         kind == Ping::streaming ? StorePolicy::streaming : StorePolicy::temporal);
    stream_fence();
    if (!ping(kind)) return {};
    return micros_since(start);
  }
  // What the peer has just written.
  std::optional<double> read() {
    if (!ping(Ping::cma)) return {};
    const auto start = steady_clock::now();
    if (read_process(peer_.identity.pid, peer_.block.load(std::memory_order_relaxed), read_.data(),
                     kBlock) != 0)
      return {};
    return micros_since(start);
  }

  PlanLines& plan_;
  Doorbell& doorbell_;
  const RankLines& peer_;
  std::byte* const staging_;
  const steady_clock::time_point until_ = steady_clock::now() + kMeasuring;
  const std::vector<std::byte> block_ = std::vector<std::byte>(kBlock);
  std::vector<std::byte> read_ = std::vector<std::byte>(kBlock);
  std::uint16_t number_ = 0;
};

}  // namespace

bool Team::reads_every_peer() {
  for (int peer = 0; peer < size(); ++peer) reads_.push_back(is_readable(lines(peer).identity));
  return std::find(reads_.begin(), reads_.end(), false) == reads_.end();
}

void Team::make_plan(Deadline deadline) {
  PlanLines& shared = layout_.plan(base_);
  TeamProfile host{
      .ranks = size(), .cpus = allowed_cpus_, .oversubscribed = oversubscribed(), .cma = true};
  for (int peer = 0; peer < size(); ++peer) {
    const RankLines& theirs = lines(peer);
    wait_for_peer(peer, kUnfinished, deadline,
                  [&] { return theirs.reads_all.load(std::memory_order_acquire) != 0; });
    host.cma &= theirs.reads_all.load(std::memory_order_acquire) == 1;
  }
  if (!host.oversubscribed) {
    std::vector<std::uint32_t> trips;
    for (int peer = 1; peer < size() && !trips_.ns.empty(); ++peer)
      if (trips_.between(0, peer) <= kBelievedNs) trips.push_back(trips_.between(0, peer));
    std::sort(trips.begin(), trips.end());
    const double trip_us = trips.empty() ? 2 * host.hop_us : trips[trips.size() / 2] * 1e-3;
    host.far = trip_us * 1000 > kFarNs;
    host.hop_us = std::clamp(trip_us / 2, 0.02, 5.0);
    host.copy_us = copy_us();
    PathMeter meter(shared, lines(0).doorbell, lines(1), layout_.staging(base_, 0, 0));
    // All or none: one beside a default would say more of the scheduler than of the memory.
    const auto temporal = meter.per_mib(Ping::temporal);
    const auto streaming = temporal ? meter.per_mib(Ping::streaming) : temporal;
    const auto cma = streaming && host.cma ? meter.per_mib(Ping::cma) : streaming;
    if (cma) {
      host.stage_us[static_cast<std::size_t>(StorePolicy::temporal)] = *temporal;
      host.stage_us[static_cast<std::size_t>(StorePolicy::streaming)] = *streaming;
      if (host.cma) host.cma_us = *cma;
    }
  }
  std::vector<std::string> warnings;
  const std::string key = fingerprint(host, trips_);
  cost_model_ = CostModel(host, load_tuning(tuning_path(key), key, warnings));
  plan_ = Plan(cost_model_, env("C10D_NATIVE_PLAN").value_or(""), warnings);
  for (const std::string& warning : warnings) log(LogLevel::warn, "native: {}", warning);
  shared.host = host;
  shared.plan = plan_;
  shared.ready.store(1, std::memory_order_release);
  lines(0).doorbell.ring();
}

void Team::agree_on_plan(Deadline deadline) {
  if (rank() == 0) return make_plan(deadline);
  PlanLines& shared = layout_.plan(base_);
  RankLines& own = lines(rank());
  std::uint32_t answered = 0;
  std::vector<std::byte> block(rank() == 1 ? kBlock : 0);
  own.block.store(reinterpret_cast<std::uint64_t>(block.data()), std::memory_order_relaxed);
  const auto answer = [&](std::uint32_t ping) {
    if (kind_of(ping) == Ping::cma)
      std::memset(block.data(), static_cast<int>(ping), block.size());
    else
      copy(block.data(), layout_.staging(base_, 0, 0), block.size(), StorePolicy::temporal);
    own.answer.store(answered = ping, std::memory_order_release);
  };
  wait_for_peer(0, "did not publish the group's plan", deadline, [&] {
    const std::uint32_t ping = shared.ping.load(std::memory_order_acquire);
    if (ping != answered && rank() == 1) answer(ping);
    return shared.ready.load(std::memory_order_acquire) != 0;
  });
  plan_ = shared.plan;
  cost_model_ = CostModel(shared.host);
  if (!plan_.valid())
    throw_failure(failure_in(context_, Code::corrupt,
                             fmt::format("rank {}'s plan is damaged: something overwrote the "
                                         "shared memory",
                                         number(0)),
                             number(0)));
}

}}}  // namespace c10d::v0::native
