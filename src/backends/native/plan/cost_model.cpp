// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "src/backends/native/plan/algorithm_plan.h"

// The built-in model: estimated times for hosts that were not measured. They rank the choices;
// their absolute values matter little.
namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kBeyondCaches = 16 * kMiB;
// One core's copy in bytes per us, by where source and target fit.
double copy_pace(double footprint, StorePolicy results, const TeamProfile& host) noexcept {
  if (footprint <= 1.5 * kMiB) return 40e3;
  const double pace = kMiB / host.copy_us[static_cast<std::size_t>(results)];
  if (footprint <= kBeyondCaches) return pace;
  return pace * (results == StorePolicy::temporal ? 0.5 : 0.65);
}
// Whether data goes from the root or to it, and is not reduced.
bool is_rooted_move(OpKind op) noexcept {
  return op == OpKind::broadcast || op == OpKind::gather || op == OpKind::scatter;
}
bool moves_both_ways(OpKind op) noexcept {
  return op == OpKind::all_gather || op == OpKind::all_to_all;
}
// Through staging, in or out. Ranks that write and read by turns do so faster than the block went
// that was measured from one to the other.
double stage_pace(const AlgorithmChoice& choice, const TeamProfile& host,
                  bool by_turns = true) noexcept {
  const double faster = by_turns ? 1.4 : 1;
  return faster * 2 * kMiB / host.stage_us[static_cast<std::size_t>(choice.store)];
}
// Slices that the kernel reads out of the memory of their rank right after are better left in its
// cache.
constexpr double kStreamedThenRead = 0.7;
// Each reading through the kernel, besides the bytes.
constexpr double kCmaCall = 2.2;
constexpr double kYield = 1.5;
// Results that every rank writes, where ranks share caches that have no room for them all.
constexpr double kStreamedOversubscribed = 0.8;

double hop_of(const TeamProfile& host) noexcept {
  return host.oversubscribed ? kYield * host.ranks : host.hop_us;
}

// Bytes that come from another core's cache because one rank writes them for others, and because it
// reads theirs, and bytes that it copies within its own memory.
struct Traffic {
  double in = 0, out = 0, own = 0;
};

// A root writes results to its cache while lines of the others are on their way to it. What it
// streams, and what the cache passes on to memory, takes its own time.
bool hides_results(const AlgorithmChoice& choice, const PlanKey& key) noexcept {
  return key.op == OpKind::reduce && choice.results == StorePolicy::temporal &&
         2 * static_cast<double>(key.bytes) <= kBeyondCaches;
}

Traffic staged_traffic(const AlgorithmChoice& choice, const PlanKey& key, double n) noexcept {
  const auto s = static_cast<double>(key.bytes);
  const double others = s * (n - 1) / n;
  switch (planned_index(key.op)) {
    case planned_index(OpKind::all_reduce):
    case planned_index(OpKind::reduce):
      if (choice.algorithm == Algorithm::one_shot)
        return {s, n * others, (hides_results(choice, key) ? 0.4 : 0.75) * s};
      // The lines that it writes it has read last, unless they are in no cache.
      return {choice.store == StorePolicy::streaming ? 2 * others : 0, 2 * others, s};
    case planned_index(OpKind::reduce_scatter):
      return {others, others, 0.5 * s};
    case planned_index(OpKind::gather):
    case planned_index(OpKind::all_gather):
      return {s / n, others, 0.5 * s};
    case planned_index(OpKind::scatter):
      return {others, s / n, 0.5 * s};
    default:
      return {s, s, 0.5 * s};
  }
}

bool exchanges_blocks(const AlgorithmChoice& choice, const PlanKey& key,
                      const TeamProfile& host) noexcept {
  return choice.algorithm == Algorithm::one_shot && moves_both_ways(key.op) &&
         exchanges(choice, host.ranks, key.bytes / 2);
}

// Beyond the caches memory is what ranks wait for, and the peer's lines come meanwhile.
double exchanged_us(const AlgorithmChoice& choice, const PlanKey& key,
                    const TeamProfile& host) noexcept {
  const auto s = static_cast<double>(key.bytes);
  const double read = key.op == OpKind::all_to_all ? s : s / 2;
  const double own = (read + s) / 2 / copy_pace(2 * s, choice.results, host);
  const double across = s / stage_pace(choice, host);
  const double steps = s / choice.chunk;
  const double waited = 2 * s > kBeyondCaches ? 0.1 : 0.45;
  return hop_of(host) * (1 + 0.1 * steps) + std::max(across, own + waited * across);
}

double staged_us(const AlgorithmChoice& choice, const PlanKey& key,
                 const TeamProfile& host) noexcept {
  if (exchanges_blocks(choice, key, host)) return exchanged_us(choice, key, host);
  const double n = host.ranks;
  const Traffic traffic = staged_traffic(choice, key, n);
  const double hop = hop_of(host);
  const bool two = choice.algorithm == Algorithm::two_shot;
  const double largest = std::max(two ? static_cast<double>(key.bytes) : traffic.in, 1.0);
  const bool one_sided = key.op == OpKind::broadcast || key.op == OpKind::gather ||
                         key.op == OpKind::scatter || key.op == OpKind::reduce;
  const bool one_way = one_sided && !two && !host.oversubscribed;
  const std::uint32_t planned =
      one_way ? one_way_chunk_bytes(choice.chunk, static_cast<std::uint64_t>(largest))
              : choice.chunk;
  const double chunk = std::min<double>(planned, largest);
  const double steps =
      std::max(1.0, largest / std::min(chunk, choice.chunk > (128u << 10) &&
                                                      largest > static_cast<double>(512u << 10)
                                                  ? static_cast<double>(128u << 10)
                                                  : chunk));
  // See place_of().
  const bool writes_own_lines = host.ranks == 2 && !one_sided && !two &&
                                choice.store == StorePolicy::temporal &&
                                traffic.in <= static_cast<double>(kSlots * choice.chunk);
  // Slices of a reduce between two ranks go one way as well.
  const bool one_direction =
      is_rooted_move(key.op) || (key.op == OpKind::reduce && two && host.ranks == 2);
  const double pace = stage_pace(choice, host, !one_direction);
  const double in =
      writes_own_lines ? traffic.in / copy_pace(0, StorePolicy::temporal, host) : traffic.in / pace;
  const double out = traffic.out / pace;
  // With one step no rank's copying in overlaps with another's copying out.
  const double together =
      one_sided && !two ? std::max(in, out) + std::min(in, out) / steps : in + out;
  const double flags = hop * (1 + (steps - 1) * 0.7 * (two ? 2 : 1) + (two ? 2 : 0));
  const double streamed = choice.store == StorePolicy::streaming ? 0.15 * steps : 0;
  // Ops that work in blocks decide by the size of one block.
  const bool whole =
      key.op == OpKind::all_reduce || key.op == OpKind::reduce || key.op == OpKind::broadcast;
  const auto blocks = static_cast<std::uint64_t>(whole ? 1 : host.ranks);
  const StorePolicy results = result_policy(choice, key.bytes / blocks);
  const bool relieves = host.oversubscribed && two && key.op == OpKind::all_reduce &&
                        results == StorePolicy::streaming;
  const double own = traffic.own / copy_pace(2 * static_cast<double>(key.bytes), results, host) *
                     (relieves ? kStreamedOversubscribed : 1);
  // All ranks share the cores.
  return flags + streamed + (together + own) * (host.oversubscribed ? n / 2 : 1);
}

// Bytes that the busiest rank moves between ranks, and within itself.
struct Moves {
  double across = 0, own = 0;
};

Moves direct_moves(const AlgorithmChoice& choice, const PlanKey& key, double n) noexcept {
  const auto s = static_cast<double>(key.bytes);
  const bool pushes = choice.algorithm == Algorithm::push;
  switch (planned_index(key.op)) {
    case planned_index(OpKind::all_reduce):
      return {2 * s * (n - 1) / n, 0};
    case planned_index(OpKind::reduce):
      return {pushes ? s : s * (n - 1), 0};
    case planned_index(OpKind::reduce_scatter):
      return {s * (n - 1) / n, 0};
    case planned_index(OpKind::broadcast):
      return {pushes ? s * (n - 1) / n : s, 0};
    case planned_index(OpKind::scatter):
      return pushes ? Moves{s, s / n} : Moves{s / n, s / n};
    case planned_index(OpKind::gather):
      return pushes ? Moves{s / n, 0} : Moves{s * (n - 1) / n, s / n};
    default:
      return {s * (n - 1) / n, s / n};
  }
}

// How much of the work of a pull is left to the busiest rank where the sender of a block helps, see
// shared_copy.h: a root is helped by one rank at a time, and helps as one of all.
double unshared_part(const PlanKey& key, const TeamProfile& host) noexcept {
  const double n = host.ranks;
  const double block = static_cast<double>(key.bytes) / (key.op == OpKind::broadcast ? 1 : n);
  if (host.oversubscribed || !is_rooted_move(key.op) || block < static_cast<double>(kLeastShared))
    return 1;
  return key.op == OpKind::gather ? 0.5 : (n - 1) / n;
}

// Lines that their rank copies for itself, too, are on their way twice.
double read_twice(const PlanKey& key) noexcept { return key.op == OpKind::all_gather ? 0.75 : 1; }

double direct_us(const AlgorithmChoice& choice, const PlanKey& key,
                 const TeamProfile& host) noexcept {
  const double n = host.ranks;
  const auto s = static_cast<double>(key.bytes);
  const bool pulls = choice.algorithm == Algorithm::pull;
  const bool streams = choice.store == StorePolicy::streaming;
  const bool pulls_results = pulls && key.op == OpKind::all_reduce;
  const Moves moves = direct_moves(choice, key, n);
  const bool left = !key.registered && is_reduction(key.op);
  const double memory =
      copy_pace(2 * s, choice.results, host) * (streams && left ? kStreamedThenRead : 1);
  // One rank alone reads what is spread over the caches of others more slowly than ranks that share
  // the work.
  const bool one_sided = key.op == OpKind::broadcast || key.op == OpKind::reduce;
  const double mapped = stage_pace(choice, host) * (one_sided ? 0.3 : pulls ? 0.6 : 0.8);
  const double kernel = kMiB / host.cma_us;
  const double across = key.registered ? mapped : kernel * read_twice(key);
  // What came through the kernel is read once more.
  const double again = !key.registered && is_reduction(key.op) ? moves.across : 0;
  const double calls = key.registered ? 0 : kCmaCall * (n - 1) * (pulls_results ? 2 : 1);
  const double part = key.registered ? 1 : unshared_part(key, host);
  // Ranks that fetch at once wait for memory, to which the kernel writes through the caches.
  const double written = key.registered || !moves_both_ways(key.op)
                             ? memory
                             : copy_pace(2 * s, StorePolicy::temporal, host);
  const double us =
      part * (calls + moves.across / std::min(across, written) + (moves.own + again) / memory);
  return hop_of(host) * (pulls_results ? 3 : 2) + us * (host.oversubscribed ? n / 2 : 1) +
         (streams ? 0.15 : 0);
}

}  // namespace

double modelled_us(const AlgorithmChoice& choice, const PlanKey& key,
                   const TeamProfile& host) noexcept {
  const double us =
      is_direct(choice.algorithm) ? direct_us(choice, key, host) : staged_us(choice, key, host);
  const bool converts = key.half && is_reduction(key.op);
  return converts ? us + static_cast<double>(key.bytes) / 40e3 : us;
}

double bound_us(const PlanKey& key, const TeamProfile& host) noexcept {
  const double n = host.ranks;
  const auto s = static_cast<double>(key.bytes);
  // One copied byte is one read and one written.
  double copied = s;
  if (key.op == OpKind::reduce_scatter || key.op == OpKind::all_gather || key.op == OpKind::reduce)
    copied = s * (1 + 1 / n) / 2;
  if (key.op == OpKind::gather || key.op == OpKind::scatter) copied = s / n;
  if (key.op == OpKind::broadcast) copied = s * (n - 1) / n;
  const double pace = std::max(copy_pace(2 * s, StorePolicy::temporal, host),
                               copy_pace(2 * s, StorePolicy::streaming, host));
  return hop_of(host) + copied / pace * (host.oversubscribed ? n / 2 : 1);
}

}}}  // namespace c10d::v0::native
