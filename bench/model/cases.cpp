// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "c10d/error.h"
#include "src/base/suggest.h"

namespace c10d::bench {

namespace {

OpFacts facts(BenchOp op, OpKind kind, bool in_place, bool sharded, std::string_view help) {
  const OpTraits& traits = traits_of(kind);
  return {op,
          op == BenchOp::isend ? "isend" : traits.name,
          kind,
          traits.has_root,
          in_place,
          sharded,
          traits.has_counts,
          help};
}

}  // namespace

const std::vector<OpFacts>& op_facts() {
  static const std::vector<OpFacts> all = {
      facts(BenchOp::all_reduce, OpKind::all_reduce, true, false,
            "every rank gets the reduction of all vectors"),
      facts(BenchOp::broadcast, OpKind::broadcast, true, false,
            "every rank gets the root's vector"),
      facts(BenchOp::all_gather, OpKind::all_gather, true, true, "every rank gets every shard"),
      facts(BenchOp::reduce_scatter, OpKind::reduce_scatter, true, true,
            "every rank gets its shard of the reduction"),
      facts(BenchOp::reduce, OpKind::reduce, true, false, "the root gets the reduction"),
      facts(BenchOp::gather, OpKind::gather, true, true, "the root gets every shard"),
      facts(BenchOp::scatter, OpKind::scatter, true, true,
            "every rank gets its shard of the root's buffer"),
      facts(BenchOp::all_to_all, OpKind::all_to_all, false, true,
            "every rank gets one shard of every rank"),
      facts(BenchOp::barrier, OpKind::barrier, false, false,
            "no rank leaves before all have arrived"),
      facts(BenchOp::send, OpKind::send, false, false,
            "send and recv: ping-pong in pairs, half a round trip"),
      facts(BenchOp::isend, OpKind::send, false, false,
            "isend and irecv: a window both ways in pairs, per message"),
      facts(BenchOp::all_gather_v, OpKind::all_gather_v, false, true,
            "all_gather of shards that differ in size"),
      facts(BenchOp::reduce_scatter_v, OpKind::reduce_scatter_v, false, true,
            "reduce_scatter to shards that differ in size"),
      facts(BenchOp::gather_v, OpKind::gather_v, false, true,
            "gather of shards that differ in size"),
      facts(BenchOp::scatter_v, OpKind::scatter_v, false, true,
            "scatter of shards that differ in size"),
      facts(BenchOp::all_to_all_v, OpKind::all_to_all_v, false, true,
            "all_to_all of shards that differ in size"),
      facts(BenchOp::scan, OpKind::scan, true, false,
            "every rank gets the reduction of the vectors up to its own"),
      facts(BenchOp::exscan, OpKind::exscan, true, false,
            "every rank gets the reduction of the vectors before its own"),
  };
  return all;
}

const OpFacts& facts_of(BenchOp op) { return op_facts()[static_cast<std::size_t>(op)]; }

std::string_view to_string(Place place) { return place == Place::in ? "in" : "out"; }

std::string_view to_string(Cache cache) {
  return cache == Cache::hot ? "hot" : cache == Cache::rotate ? "rotate" : "cold";
}

std::string_view nearest_name(std::string_view word, const std::vector<std::string_view>& names) {
  return nearest(word, names, 2);
}

BenchOp bench_op_from_string(std::string_view name) {
  if (name == "recv") return BenchOp::send;
  if (name == "irecv") return BenchOp::isend;
  std::vector<std::string_view> names;
  for (const OpFacts& facts : op_facts()) {
    if (facts.name == name) return facts.op;
    names.push_back(facts.name);
  }
  const std::string_view near = nearest_name(name, names);
  if (!near.empty())
    throw InvalidArgument(fmt::format("unknown op '{}': did you mean {}?", name, near));
  throw InvalidArgument(fmt::format("unknown op '{}': one of {}", name, fmt::join(names, " ")));
}

std::uint64_t shard_of(const Case& c, int ranks, int index) {
  if (!c.counts.empty()) return c.counts[static_cast<std::size_t>(index)];
  const bool last = index == ranks - 1 && index % 2 == 0;
  if (!facts_of(c.op).uneven || last) return c.shard;
  return index % 2 == 0 ? c.shard + c.shard / 4 : c.shard - c.shard / 4;
}

std::uint64_t shards_before(const Case& c, int ranks, int index) {
  std::uint64_t before = 0;
  for (int i = 0; i < index; ++i) before += shard_of(c, ranks, i);
  return before;
}

CellKey key_of(const Case& c) {
  const OpFacts& facts = facts_of(c.op);
  CellKey key;
  key.op = facts.name;
  if (c.op != BenchOp::barrier) key.dtype = to_string(c.dtype);
  if (is_reduction(facts.kind)) key.redop = to_string(c.redop);
  key.place = to_string(c.place);
  key.root = facts.rooted ? c.root : -1;
  key.bytes = c.bytes;
  if (c.op != BenchOp::barrier) key.cache = to_string(c.cache);
  key.concurrent = c.concurrent;
  return key;
}

namespace {

// Bytes of one element on each rank that has a shard.
std::uint64_t unit_of(BenchOp op, DType dtype, int ranks) {
  return (facts_of(op).sharded ? static_cast<std::uint64_t>(ranks) : 1) * size_of(dtype);
}

// Adds the sizes of one (op, dtype, redop, root, place) line of the sweep.
void expand_sizes(const Sweep& sweep, Case c, int ranks, std::vector<Case>& cases) {
  if (c.op == BenchOp::barrier) {
    cases.push_back(c);
    return;
  }
  std::set<std::uint64_t> seen;
  for (const std::uint64_t size : sweep.sizes) {
    c.bytes = whole_bytes(c.op, c.dtype, ranks, size);
    c.shard = c.bytes / unit_of(c.op, c.dtype, ranks);
    if (c.cache == Cache::rotate && sweep.last_level > 0 && c.bytes >= sweep.last_level) continue;
    if (seen.insert(c.bytes).second) cases.push_back(c);
  }
}

// Adds the sizes of one (op, dtype, redop, root, place) line in each state of the caches.
void expand_caches(const Sweep& sweep, Case c, int ranks, std::vector<Case>& cases) {
  c.concurrent = is_point_to_point(facts_of(c.op).kind) ? 1 : sweep.concurrent;
  for (const Cache cache : sweep.caches) {
    if (c.op == BenchOp::barrier && cache != sweep.caches.front()) continue;
    c.cache = cache;
    expand_sizes(sweep, c, ranks, cases);
  }
}

}  // namespace

std::uint64_t whole_bytes(BenchOp op, DType dtype, int ranks, std::uint64_t size) {
  const std::uint64_t unit = unit_of(op, dtype, ranks);
  return std::max<std::uint64_t>(1, size / unit) * unit;
}

std::vector<Case> expand(const Sweep& sweep, int ranks) {
  std::vector<Case> cases;
  for (const BenchOp op : sweep.ops) {
    const OpFacts& facts = facts_of(op);
    const bool reduces = is_reduction(facts.kind);
    for (const DType dtype : sweep.dtypes) {
      for (const ReduceOp::Kind redop : sweep.redops) {
        if (!reduces && redop != sweep.redops.front()) continue;
        if (!why_unsupported(facts.kind, redop, dtype).empty()) continue;
        for (const int root : sweep.roots) {
          if (!facts.rooted && root != sweep.roots.front()) continue;
          for (const Place place : sweep.places) {
            if (place == Place::in && !facts.in_place) continue;
            Case c;
            c.op = op;
            c.dtype = dtype;
            c.redop = redop;
            c.root = root;
            c.place = place;
            expand_caches(sweep, c, ranks, cases);
          }
        }
      }
      if (op == BenchOp::barrier) break;
    }
  }
  return cases;
}

std::vector<std::uint64_t> size_range(std::uint64_t min, std::uint64_t max, double factor,
                                      std::uint64_t step) {
  if (max > kLargestSize)
    throw InvalidArgument(fmt::format("sizes up to {} bytes: the largest is 4T", max));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = min; size <= max;) {
    sizes.push_back(size);
    const double scaled = std::min(static_cast<double>(size) * factor, 2.0 * kLargestSize);
    size = std::max(step > 0 ? size + step : static_cast<std::uint64_t>(scaled), size + 1);
  }
  return sizes;
}

std::vector<std::size_t> block_order(std::size_t count, bool random, std::uint64_t seed, int launch,
                                     std::size_t case_index, int block) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!random) {
    if (block % 2 == 1) std::reverse(order.begin(), order.end());
    return order;
  }
  std::seed_seq mix{seed, seed >> 32, static_cast<std::uint64_t>(launch),
                    static_cast<std::uint64_t>(case_index), static_cast<std::uint64_t>(block)};
  std::mt19937_64 generator(mix);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[generator() % i]);
  return order;
}

int window_of(const Case& c, int asked) {
  constexpr std::uint64_t kInFlight = std::uint64_t{64} << 20;
  const std::uint64_t fit =
      std::max<std::uint64_t>(1, kInFlight / std::max<std::uint64_t>(1, c.bytes));
  return static_cast<int>(std::min<std::uint64_t>(fit, static_cast<std::uint64_t>(asked)));
}

int burst_of(const Case& c) {
  if (c.cache == Cache::cold) return 1;  // what flushes the caches is not to be timed
  constexpr std::uint64_t kTogether = std::uint64_t{4} << 20;
  constexpr std::uint64_t kMost = 64;
  return static_cast<int>(
      std::clamp<std::uint64_t>(kTogether / std::max<std::uint64_t>(1, c.bytes), 1, kMost));
}

namespace {

// Of one op.
Footprint footprint_of(const Case& c, int ranks, int window) {
  const std::uint64_t shard = c.shard * size_of(c.dtype);
  const std::uint64_t all = shards_before(c, ranks, ranks) * size_of(c.dtype);
  std::uint64_t largest = 0;
  for (int rank = 0; rank < ranks; ++rank)
    largest = std::max(largest, shard_of(c, ranks, rank) * size_of(c.dtype));
  Footprint bytes{largest, largest};
  switch (c.op) {
    case BenchOp::barrier:
      return {};
    case BenchOp::isend:
      bytes.output = shard * static_cast<std::uint64_t>(window_of(c, window));
      break;
    case BenchOp::all_gather:
    case BenchOp::gather:
    case BenchOp::all_gather_v:
    case BenchOp::gather_v:
      bytes.output = all;
      break;
    case BenchOp::reduce_scatter:
    case BenchOp::scatter:
    case BenchOp::reduce_scatter_v:
    case BenchOp::scatter_v:
      bytes.input = all;
      break;
    case BenchOp::all_to_all:
    case BenchOp::all_to_all_v:
      bytes = {all, all};
      break;
    default:
      break;
  }
  // In place the op works on one buffer, and the other one keeps the input for the next iteration.
  if (c.place == Place::in) bytes.output = std::max(bytes.input, bytes.output);
  return bytes;
}

}  // namespace

Footprint stride_of(const Case& c, int ranks, int window) {
  constexpr std::uint64_t kPair = 128;
  const Footprint one = footprint_of(c, ranks, window);
  return {(one.input + kPair - 1) / kPair * kPair, (one.output + kPair - 1) / kPair * kPair};
}

std::uint64_t sets_of(const Case& c, int ranks, int window) {
  if (c.cache != Cache::rotate || c.op == BenchOp::barrier) return 1;
  const Footprint stride = stride_of(c, ranks, window);
  // What stays where it is when a case is in place does not count.
  const std::uint64_t moving = (c.place == Place::in ? stride.output : stride.sum()) *
                               static_cast<std::uint64_t>(c.concurrent);
  if (moving == 0) return 1;  // all counts are 0
  return std::max<std::uint64_t>(2, c.walk / moving + 1);
}

Footprint memory_of(const Case& c, int ranks, int window) {
  const Footprint stride = stride_of(c, ranks, window);
  const std::uint64_t slots = sets_of(c, ranks, window) * static_cast<std::uint64_t>(c.concurrent);
  return {stride.input * (c.place == Place::in ? 1 : slots), stride.output * slots};
}

Footprint memory_of(const std::vector<Case>& cases, int ranks, int window) {
  Footprint most;
  for (const Case& c : cases) {
    const Footprint one = memory_of(c, ranks, window);
    most = {std::max(most.input, one.input), std::max(most.output, one.output)};
  }
  return most;
}

}  // namespace c10d::bench
