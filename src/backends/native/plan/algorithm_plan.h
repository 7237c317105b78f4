// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/collective.h"
#include "kernels/copy.h"

// Which algorithm, store policy and chunk a call takes. When a group is made, rank 0 estimates the
// time of every choice and publishes the fastest, so that all ranks take the same one.
namespace c10d { inline namespace v0 { namespace native {

enum class Algorithm : std::uint8_t {
  one_shot,  // through staging: each rank that wants a result computes all of it
  two_shot,  // through staging: every rank reduces a slice, then the slices are collected
  pull,      // reads the other ranks' memory where it lies
  push       // writes into the other ranks' memory
};
constexpr bool is_direct(Algorithm algorithm) noexcept { return algorithm >= Algorithm::pull; }

struct AlgorithmChoice {
  Algorithm algorithm;
  StorePolicy store;    // of what other ranks will read
  StorePolicy results;  // where read and large: see result_policy()
  std::uint32_t chunk;  // bytes that a rank stages in one step; 0 where nothing is staged
};

// Results that may stay in a core's cache are written through it.
inline StorePolicy result_policy(const AlgorithmChoice& choice, std::uint64_t bytes) noexcept {
  return bytes >= (std::uint64_t{1} << 20) ? choice.results : StorePolicy::temporal;
}

// Whether two ranks that both send and receive, and whose results of `bytes` go past the caches, do
// all of it in one loop: see run_exchange().
inline bool exchanges(const AlgorithmChoice& choice, int ranks, std::uint64_t bytes) noexcept {
  return ranks == 2 && choice.store == StorePolicy::temporal &&
         result_policy(choice, bytes) == StorePolicy::streaming;
}

// Where some ranks only stage and the others only read, no rank waits for more than a quarter.
constexpr std::uint32_t one_way_chunk_bytes(std::uint32_t chunk, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kLeast = 8192;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(chunk, std::max(kLeast, (bytes + 3) / 4)));
}

inline constexpr std::size_t kSlots = 4;  // slots of one staging half, for pipelining
static_assert(kSlots >= 3);               // see run_two_shots()
// Two ranks copy a block together (shared_copy.h) from this size on: below, the flags between them
// cost more than a second core saves.
inline constexpr std::size_t kLeastShared = std::size_t{32} << 10;
inline constexpr std::uint32_t kChunks[] = {32u << 10, 128u << 10, 512u << 10};
// Everything that a plan can choose. The earlier one wins a tie.
std::span<const AlgorithmChoice> choices() noexcept;
// "one_shot/temporal/32768", "two_shot/mixed/131072" (only results are streamed), "pull/streaming".
std::string name_of(const AlgorithmChoice& choice);

// The rows of a plan: an op and its v variant share one.
inline constexpr std::size_t kPlannedOps = 8;
inline constexpr std::size_t kUnplanned = kPlannedOps;
constexpr std::size_t planned_index(OpKind op) noexcept {
  switch (op) {
    case OpKind::all_reduce:
      return 0;
    case OpKind::broadcast:
      return 1;
    case OpKind::all_gather:
    case OpKind::all_gather_v:
      return 2;
    case OpKind::reduce_scatter:
    case OpKind::reduce_scatter_v:
      return 3;
    case OpKind::reduce:
      return 4;
    case OpKind::gather:
    case OpKind::gather_v:
      return 5;
    case OpKind::scatter:
    case OpKind::scatter_v:
      return 6;
    case OpKind::all_to_all:
    case OpKind::all_to_all_v:
      return 7;
    case OpKind::scan:
    case OpKind::exscan:
    case OpKind::barrier:
    case OpKind::send:
    case OpKind::recv:
      return kUnplanned;
  }
  return kPlannedOps + 1;
}
constexpr bool plan_covers_every_op() noexcept {
  for (int op = 0; op < kOpCount; ++op)
    if (planned_index(static_cast<OpKind>(op)) > kUnplanned) return false;
  return true;
}
static_assert(plan_covers_every_op());
OpKind planned_op(std::size_t index) noexcept;

// use(item, op, name) for each item of a forced plan: "op=name", or "name" with an empty op, by
// commas.
template <class Use>
void for_each_forced(std::string_view forced, Use use) {
  while (!forced.empty()) {
    const std::string_view item = forced.substr(0, forced.find(','));
    forced.remove_prefix(std::min(forced.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const bool has_op = equals != item.npos;
    use(item, item.substr(0, has_op ? equals : 0), item.substr(has_op ? equals + 1 : 0));
  }
}

// What a choice depends on besides the group: one cell of the plan.
struct PlanKey {
  OpKind op = OpKind::all_reduce;
  std::uint64_t bytes = 0;  // one rank's vector, or the n blocks of the larger buffer together
  bool half = false;        // f16, bf16: conversions take time
  bool registered = false;  // all memory that others touch lies in the heap
};
inline PlanKey plan_key(OpKind op, DType dtype, std::uint64_t bytes) noexcept {
  const bool half = is_reduction(op) && (dtype == DType::f16 || dtype == DType::bf16);
  return {op, bytes, half, false};
}

// The ranks of a host, and the host, as far as they change the time of a choice.
struct TeamProfile {
  int ranks = 2;
  int cpus = 2;                 // that any of the ranks may run on
  bool oversubscribed = false;  // more ranks than CPUs
  bool far = false;             // a flag takes long from rank to rank: see kFarNs
  bool cma = false;             // every rank can read every other's memory
  double hop_us = 0.15;         // one way
  // Microseconds to stage a MiB on one rank and copy it out on another, by StorePolicy.
  std::array<double, 2> stage_us = {200, 300};
  double cma_us = 100;  // to read a MiB out of another rank's memory through the kernel
  // To copy a MiB of own memory where more is in use than a core's caches hold, by StorePolicy.
  std::array<double, 2> copy_us = {65, 65};
};
inline constexpr double kFarNs = 200;  // round trip

// Whether the choice is an algorithm of the op that works with such memory.
bool applies(const AlgorithmChoice& choice, const PlanKey& key, const TeamProfile& host) noexcept;
// Microseconds by the built-in model: hops, and bytes at the pace of the cache that they fit into.
double modelled_us(const AlgorithmChoice& choice, const PlanKey& key,
                   const TeamProfile& host) noexcept;
// What no algorithm can beat: the bytes that must be read and written, and one hop.
double bound_us(const PlanKey& key, const TeamProfile& host) noexcept;

// Measured times of one choice for one op.
struct Curve {
  std::size_t choice = 0;  // in choices()
  std::size_t op = 0;      // planned_index
  bool half = false;
  bool registered = false;
  std::vector<double> bytes, us;  // rising
};

// The time of every choice: measured where there are curves, else modelled.
class CostModel {
 public:
  explicit CostModel(const TeamProfile& host, std::vector<Curve> curves = {});
  const TeamProfile& host() const noexcept { return host_; }
  double us(std::size_t choice, const PlanKey& key) const noexcept;
  bool is_measured(std::size_t choice, const PlanKey& key) const noexcept;

 private:
  const Curve* curve(std::size_t choice, const PlanKey& key) const noexcept;
  static std::size_t place(std::size_t op, bool half, bool registered, std::size_t choice) noexcept;
  TeamProfile host_;
  std::vector<Curve> curves_;
  std::vector<std::uint32_t> index_;  // by place(): 1 + which curve, or 0; empty without curves
};

// The winners on a grid of sizes, two to an octave. Lies in shared memory while it travels.
class Plan {
 public:
  Plan() = default;
  // `forced` is C10D_NATIVE_PLAN: "two_shot/streaming/32768", or with "op=" before it, by commas.
  // An item that does not apply to an op is ignored there; one that names no choice goes to
  // `warnings`.
  Plan(const CostModel& costs, std::string_view forced, std::vector<std::string>& warnings);

  const AlgorithmChoice& find(const PlanKey& key) const noexcept {
    return choices()[winners_[planned_index(key.op)][key.half ? 1 : 0][key.registered ? 1 : 0]
                             [cell_of(key.bytes)]];
  }
  std::uint64_t id() const noexcept { return id_; }
  // A plan that came from another process may hold anything.
  bool valid() const noexcept;

 private:
  static constexpr int kFirstBit = 5, kLastBit = 33;  // 32 B .. 8 GiB
  static constexpr std::size_t kCells = (kLastBit - kFirstBit + 1) * 2;
  static std::size_t cell_of(std::uint64_t bytes) noexcept {
    if (bytes < (std::uint64_t{1} << kFirstBit)) return 0;
    const int bit = std::bit_width(bytes) - 1;
    if (bit > kLastBit) return kCells - 1;
    return static_cast<std::size_t>(bit - kFirstBit) * 2 + (bytes >> (bit - 1) & 1);
  }
  static std::uint64_t bytes_of_cell(std::size_t cell) noexcept {
    return (2 + cell % 2) << (cell / 2 + kFirstBit - 1);
  }
  std::uint64_t hash() const noexcept;

  using Row = std::array<std::uint8_t, kCells>;
  std::uint64_t id_ = 0;
  std::array<std::array<std::array<Row, 2>, 2>, kPlannedOps> winners_{};
};

}}}  // namespace c10d::v0::native
