// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/collective.h"

namespace c10d::bench {

// What is measured. `send` is a blocking ping-pong (time = half a round trip), `isend` a window of
// messages in flight both ways (time per message); their receiving halves are part of the same
// cell.
enum class BenchOp : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  send,
  isend,
  all_gather_v,
  reduce_scatter_v,
  gather_v,
  scatter_v,
  all_to_all_v,
  scan,
  exscan
};
enum class Place : std::uint8_t { out, in };
// Where the buffers are when an op starts: in the caches as the last iteration left them; in none,
// because every iteration takes others of a set larger than the last-level cache; in none, because
// their lines were flushed.
enum class Cache : std::uint8_t { hot, rotate, cold };

struct OpFacts {
  BenchOp op;
  std::string_view name;
  OpKind kind;
  bool rooted;
  bool in_place;  // whether the op has an in-place form
  bool sharded;   // S is n shards; else S is one rank's vector
  bool uneven;    // shards differ in size: see shard_of()
  std::string_view help;
};
const std::vector<OpFacts>& op_facts();
const OpFacts& facts_of(BenchOp op);
// "recv" is "send" and "irecv" is "isend". Throws InvalidArgument with the nearest name.
BenchOp bench_op_from_string(std::string_view name);
std::string_view to_string(Place place);
std::string_view to_string(Cache cache);

// The word of `names` with the smallest edit distance, or empty when none is near.
std::string_view nearest_name(std::string_view word, const std::vector<std::string_view>& names);

// One end of a message between two ranks, which a replay runs.
struct MessageEnd {
  int from = 0;
  int to = 0;
  std::uint32_t tag = 0;
  bool sends = false;
  int rank() const noexcept { return sends ? from : to; }  // that runs it
  auto operator<=>(const MessageEnd&) const = default;
};

// One point of the sweep, the same on every rank; every backend is measured on it.
struct Case {
  BenchOp op = BenchOp::all_reduce;
  DType dtype = DType::f32;
  ReduceOp::Kind redop = ReduceOp::sum;  // of reductions
  int root = 0;                          // of rooted ops
  Place place = Place::out;
  std::uint64_t bytes = 0;  // S, in nccl-tests' sense; 0 for barrier
  std::uint64_t shard = 0;  // elements: of one rank's vector, or of one shard
  Cache cache = Cache::hot;
  int concurrent = 1;      // ops at once, each on a group and on buffers of its own
  std::uint64_t walk = 0;  // Cache::rotate: bytes of one rank's sets of buffers together
  std::vector<std::uint64_t> counts{};  // of uneven shards, where they are given
  std::optional<MessageEnd> end{};      // of a `send` that is no ping-pong
};

// Elements of shard `index` of `ranks`, and of those before it. Uneven shards that are not given
// are a quarter larger and a quarter smaller than Case::shard in turns; an odd last one is as
// large.
std::uint64_t shard_of(const Case& c, int ranks, int index);
std::uint64_t shards_before(const Case& c, int ranks, int index);
// Which of them goes `from` one rank `to` the other in an all_to_all.
constexpr int shard_between(int from, int to, int ranks) noexcept { return (from + to) % ranks; }

// How a case is written into files and compared between them.
struct CellKey {
  std::string op;
  std::string dtype;  // empty for barrier
  std::string redop;  // empty unless the op reduces
  std::string place;
  int root = -1;  // -1 unless the op has a root
  std::uint64_t bytes = 0;
  std::string cache = "hot";
  int concurrent = 1;
  auto operator<=>(const CellKey&) const = default;
};
CellKey key_of(const Case& c);

struct Sweep {
  std::vector<BenchOp> ops;
  std::vector<DType> dtypes;
  std::vector<ReduceOp::Kind> redops;
  std::vector<int> roots;
  std::vector<Place> places;
  std::vector<std::uint64_t> sizes;
  std::vector<Cache> caches = {Cache::hot};
  std::uint64_t last_level = 0;  // where sizes end that are rotated beside hot; 0: nowhere
  int concurrent = 1;
};
// The cases of a sweep at `ranks` ranks, without pairs that make no sense and without duplicates: a
// size is rounded down to whole elements, and up to one element per shard.
std::vector<Case> expand(const Sweep& sweep, int ranks);

// S of a case that was asked for with `size` bytes: rounded as expand() does.
std::uint64_t whole_bytes(BenchOp op, DType dtype, int ranks, std::uint64_t size);

// The largest S: with it, no sum over the buffers of 1024 ranks wraps round.
inline constexpr std::uint64_t kLargestSize = std::uint64_t{4} << 40;
// min, min * factor, ... up to max; or min, min + step, ... when step > 0. Throws InvalidArgument
// when max is above kLargestSize.
std::vector<std::uint64_t> size_range(std::uint64_t min, std::uint64_t max, double factor,
                                      std::uint64_t step);

// The order of `count` backends in one block: the same on every rank. With `random`, drawn from the
// numbers; else forwards and backwards in turn.
std::vector<std::size_t> block_order(std::size_t count, bool random, std::uint64_t seed, int launch,
                                     std::size_t case_index, int block);

// Bytes on one rank, the most of any.
struct Footprint {
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  std::uint64_t sum() const noexcept { return input + output; }
};
// From one op's buffers to the next one's: whole pairs of cache lines, so that none is shared or
// fetched along.
Footprint stride_of(const Case& c, int ranks, int window);
// How many sets of buffers iterations go round.
std::uint64_t sets_of(const Case& c, int ranks, int window);
// Of all buffers that the case needs; that any of the cases needs.
Footprint memory_of(const Case& c, int ranks, int window);
Footprint memory_of(const std::vector<Case>& cases, int ranks, int window);

// Messages in flight of `isend`: never more than 64 MiB of them.
int window_of(const Case& c, int asked);

// How often ranks that share CPUs run an op between two barriers: they wake up one after the other,
// which takes as long as many small ops do.
int burst_of(const Case& c);

}  // namespace c10d::bench
