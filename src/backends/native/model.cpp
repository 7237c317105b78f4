// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "src/backends/native/plan.h"

// The built-in prices: what is known of machines before one was measured. They order choices; their
// absolute values matter little.
namespace c10d::inline v0::native {
namespace {

constexpr double kMiB = 1 << 20;
// One core's copy, GB/s = 1e3 bytes per us, by where the bytes fit.
double copy_pace(double footprint) noexcept {
  if (footprint <= 1.5 * kMiB) return 40e3;
  if (footprint <= 16 * kMiB) return 16e3;
  return 8e3;
}
// Ordinary stores into lines that another core has read fetch them back first.
double stage_pace(const Choice& choice, const Machine& machine) noexcept {
  if (choice.store == StorePolicy::streaming) return machine.far ? 14e3 : 10e3;
  return machine.far ? 8e3 : 14e3;
}
constexpr double kCmaPace = 11e3;  // pages of 4 KiB
constexpr double kCmaCall = 1.4;
constexpr double kYield = 1.5;

double hop_of(const Machine& machine) noexcept {
  return machine.crowded ? kYield * machine.ranks : machine.hop_us;
}

// Bytes that one rank copies into staging, copies or reduces out of it, over all.
struct Traffic {
  double in = 0, out = 0;
};

Traffic staged_traffic(const Choice& choice, const PlanKey& key, double n) noexcept {
  const auto s = static_cast<double>(key.bytes);
  switch (planned_index(key.op)) {
    case planned_index(OpKind::all_reduce):
      if (choice.algorithm == Algorithm::one_shot) return {s, n * s};
      return {s * (n - 1) / n + s / n, s + s};
    case planned_index(OpKind::reduce):
      if (choice.algorithm == Algorithm::one_shot) return {s, n * s};
      return {s * (n - 1) / n + s / n, s / n * n + s};
    case planned_index(OpKind::broadcast):
      return {s, s};
    case planned_index(OpKind::reduce_scatter):
      return {s * (n - 1) / n, s};
    case planned_index(OpKind::gather):
      return {s / n, s};
    case planned_index(OpKind::scatter):
      return {s, s / n};
    case planned_index(OpKind::all_gather):
      return {2 * s / n, s * (n - 1) / n};
    default:
      return {s, s};
  }
}

double staged_us(const Choice& choice, const PlanKey& key, const Machine& machine) noexcept {
  const double n = machine.ranks;
  const Traffic traffic = staged_traffic(choice, key, n);
  const double hop = hop_of(machine);
  const double largest = std::max(traffic.in, 1.0);
  const double chunk = std::min<double>(choice.chunk, largest);
  const double steps =
      std::max(1.0, largest / std::min(chunk, choice.chunk > (128u << 10) &&
                                                      largest > static_cast<double>(512u << 10)
                                                  ? static_cast<double>(128u << 10)
                                                  : chunk));
  const bool two = choice.algorithm == Algorithm::two_shot;
  const double footprint = 2 * static_cast<double>(key.bytes);
  const double in = traffic.in / stage_pace(choice, machine);
  const double out = traffic.out / std::min(copy_pace(footprint), machine.far ? 14e3 : 20e3);
  // With one step nobody's copying in hides another's copying out.
  const bool one_sided = key.op == OpKind::broadcast || key.op == OpKind::gather ||
                         key.op == OpKind::scatter || key.op == OpKind::reduce;
  const double together =
      one_sided && !two ? std::max(in, out) + std::min(in, out) / steps : in + out;
  const double flags = hop * (1 + (steps - 1) * 0.7 * (two ? 2 : 1) + (two ? 2 : 0));
  const double streamed = choice.store == StorePolicy::streaming ? 0.15 * steps : 0;
  // All ranks share the cores.
  return flags + streamed + together * (machine.crowded ? n / 2 : 1);
}

double direct_us(const Choice& choice, const PlanKey& key, const Machine& machine) noexcept {
  const double n = machine.ranks;
  const auto s = static_cast<double>(key.bytes);
  const bool all_reduce = key.op == OpKind::all_reduce;
  double bytes = s * (n - 1) / n;  // all_gather, reduce_scatter, all_to_all, gather
  if (all_reduce) bytes = 2 * bytes;
  if (key.op == OpKind::broadcast)
    bytes = choice.algorithm == Algorithm::push ? s * (n - 1) / n : s;
  if (key.op == OpKind::reduce) bytes = s;
  if (key.op == OpKind::scatter ||
      (key.op == OpKind::gather && choice.algorithm == Algorithm::push))
    bytes = s / n;
  double pace = copy_pace(2 * s);
  const bool streams = choice.store == StorePolicy::streaming;
  const bool large = s > 4 * kMiB;
  if (!key.registered) pace = std::min(pace, kCmaPace);
  if (key.registered && !large) pace = std::min(pace, streams ? 15e3 : machine.far ? 12e3 : 24e3);
  if (large && streams) pace *= 1.3;
  if (choice.algorithm == Algorithm::push && machine.far && streams) pace *= 1.1;
  const double syncs =
      hop_of(machine) * (all_reduce && choice.algorithm == Algorithm::pull ? 3 : 2);
  const double calls = key.registered ? 0 : kCmaCall * (n - 1) * (all_reduce ? 2 : 1);
  return syncs + calls + bytes / pace * (machine.crowded ? n / 2 : 1) + (streams ? 0.15 : 0);
}

}  // namespace

double modelled_us(const Choice& choice, const PlanKey& key, const Machine& machine) noexcept {
  const double us = is_direct(choice.algorithm) ? direct_us(choice, key, machine)
                                                : staged_us(choice, key, machine);
  const bool converts = key.half && is_reduction(key.op);
  return converts ? us + static_cast<double>(key.bytes) / 40e3 : us;
}

double bound_us(const PlanKey& key, const Machine& machine) noexcept {
  const double n = machine.ranks;
  const auto s = static_cast<double>(key.bytes);
  // One copied byte is one read and one written.
  double copied = s;
  if (key.op == OpKind::reduce_scatter || key.op == OpKind::all_gather || key.op == OpKind::reduce)
    copied = s * (1 + 1 / n) / 2;
  if (key.op == OpKind::gather || key.op == OpKind::scatter) copied = s / n;
  if (key.op == OpKind::broadcast) copied = s * (n - 1) / n;
  return hop_of(machine) + copied / copy_pace(2 * s) * (machine.crowded ? n / 2 : 1);
}

}  // namespace c10d::inline v0::native
