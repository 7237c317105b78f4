// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/oracle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "bench/measure/arena.h"
#include "bench/measure/buffers.h"
#include "c10d/error.h"

namespace c10d::bench { namespace {

constexpr int kRanks = 3;
constexpr std::uint64_t kShard = 1000;

Case case_of(BenchOp op, DType dtype = DType::f32, ReduceOp::Kind redop = ReduceOp::sum,
             Place place = Place::out) {
  const std::uint64_t shards = facts_of(op).sharded ? kRanks : 1;
  return {op, dtype, redop, 1, place, kShard * shards * size_of(dtype), kShard};
}

// The memory of every rank, and the ops as written in collective.h, done by copies.
struct World {
  explicit World(const Case& c) {
    for (int rank = 0; rank < kRanks; ++rank) {
      inputs.push_back(std::make_unique<Arena>(64 * kShard));
      outputs.push_back(std::make_unique<Arena>(64 * kShard));
      ranks.push_back(
          std::make_unique<Buffers>(c, rank, kRanks, 4, 42, *inputs.back(), *outputs.back()));
    }
  }
  template <class T>
  const T& op(int rank) const {
    return std::get<T>(ranks[static_cast<std::size_t>(rank)]->ops().front());
  }
  std::uint64_t wrong() const {
    std::uint64_t sum = 0;
    for (const auto& rank : ranks) sum += rank->wrong();
    return sum;
  }
  void poison() {
    for (const auto& rank : ranks) rank->poison_output();
  }
  std::vector<std::unique_ptr<Arena>> inputs, outputs;
  std::vector<std::unique_ptr<Buffers>> ranks;
};

void copy(View to, ConstView from) {
  ASSERT_EQ(to.bytes(), from.bytes());
  std::memmove(to.data, from.data, from.bytes());
}

TEST(Oracle, AcceptsASumAndFindsOneWrongElement) {
  for (const Place place : {Place::out, Place::in}) {
    World world(case_of(BenchOp::all_reduce, DType::f32, ReduceOp::sum, place));
    world.poison();
    std::vector<float> sum(kShard, 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto* input = static_cast<const float*>(world.op<AllReduce>(rank).input.data);
      for (std::size_t i = 0; i < kShard; ++i) sum[i] += input[i];
    }
    for (int rank = 0; rank < kRanks; ++rank)
      copy(world.op<AllReduce>(rank).output, ConstView(sum));
    EXPECT_EQ(world.wrong(), 0U);
    static_cast<float*>(world.op<AllReduce>(2).output.data)[77] += 1;
    EXPECT_EQ(world.wrong(), 1U);
  }
}

TEST(Oracle, SeesAResultThatWasNeverWritten) {
  for (const BenchOp op :
       {BenchOp::all_reduce, BenchOp::all_gather, BenchOp::all_to_all, BenchOp::broadcast}) {
    World world(case_of(op));
    world.poison();
    EXPECT_GT(world.wrong(), kShard) << facts_of(op).name;
  }
}

TEST(Oracle, MovesAreWhatCollectiveHSays) {
  World gathered(case_of(BenchOp::all_gather, DType::i64));
  World exchanged(case_of(BenchOp::all_to_all, DType::i64));
  World scattered(case_of(BenchOp::scatter, DType::i64));
  World sent(case_of(BenchOp::broadcast, DType::i64));
  for (std::size_t to = 0; to < kRanks; ++to) {
    const int rank = static_cast<int>(to);
    for (std::size_t from = 0; from < kRanks; ++from) {
      const int peer = static_cast<int>(from);
      copy(gathered.op<AllGather>(rank).output.slice(from * kShard, kShard),
           gathered.op<AllGather>(peer).input);
      copy(exchanged.op<AllToAll>(rank).output.slice(from * kShard, kShard),
           exchanged.op<AllToAll>(peer).input.slice(to * kShard, kShard));
    }
    copy(scattered.op<Scatter>(rank).output,
         scattered.op<Scatter>(1).input.slice(to * kShard, kShard));
    copy(sent.op<Broadcast>(rank).output, sent.op<Broadcast>(1).input);
  }
  for (const World* world : {&gathered, &exchanged, &scattered, &sent})
    EXPECT_EQ(world->wrong(), 0U);
  EXPECT_NE(gathered.ranks[0]->hash(), 0U);
  EXPECT_EQ(gathered.ranks[0]->hash(), gathered.ranks[2]->hash());
}

// Shards of three sizes, at the places that the counts of the ops give them.
TEST(Oracle, MovesOfUnevenShardsAreWhatCollectiveHSays) {
  World gathered(case_of(BenchOp::all_gather_v, DType::i64));
  World collected(case_of(BenchOp::gather_v, DType::i64));
  World exchanged(case_of(BenchOp::all_to_all_v, DType::i64));
  World scattered(case_of(BenchOp::scatter_v, DType::i64));
  World reduced(case_of(BenchOp::reduce_scatter_v, DType::i64));
  const auto sum = [](const auto& counts, int end) {
    return std::accumulate(counts.begin(), counts.begin() + end, std::size_t{0});
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto& gather = gathered.op<AllGatherV>(rank);
    const auto& exchange = exchanged.op<AllToAllV>(rank);
    EXPECT_EQ(sum(gather.counts, kRanks), kRanks * kShard);
    EXPECT_NE(gather.counts[0], gather.counts[1]);
    for (int peer = 0; peer < kRanks; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      const auto& theirs = exchanged.op<AllToAllV>(peer);
      copy(gather.output.slice(sum(gather.counts, peer), gather.counts[at]),
           gathered.op<AllGatherV>(peer).input);
      copy(exchange.output.slice(sum(exchange.output_counts, peer), exchange.output_counts[at]),
           theirs.input.slice(sum(theirs.input_counts, rank),
                              theirs.input_counts[static_cast<std::size_t>(rank)]));
    }
    const auto& root = scattered.op<ScatterV>(1);
    const std::size_t count = root.counts[static_cast<std::size_t>(rank)];
    copy(scattered.op<ScatterV>(rank).output, root.input.slice(sum(root.counts, rank), count));
    const auto& gatherer = collected.op<GatherV>(1);
    copy(gatherer.output.slice(sum(gatherer.counts, rank), count),
         collected.op<GatherV>(rank).input);
    const auto& reduce = reduced.op<ReduceScatterV>(rank);
    auto* const to = static_cast<std::int64_t*>(reduce.output.data);
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = 0;
      for (int peer = 0; peer < kRanks; ++peer)
        to[i] += static_cast<const std::int64_t*>(
            reduced.op<ReduceScatterV>(peer).input.data)[sum(reduce.counts, rank) + i];
    }
  }
  for (const World* world : {&gathered, &collected, &exchanged, &scattered, &reduced})
    EXPECT_EQ(world->wrong(), 0U);
  const auto& output = exchanged.op<AllToAllV>(2).output;
  static_cast<std::int64_t*>(output.data)[output.count - 1] += 1;
  EXPECT_EQ(exchanged.wrong(), 1U);
}

// Every input is a number that its dtype holds, and small enough that no sum of 8 ranks leaves it.
TEST(Oracle, InputsAreExactInEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int k = 0; k < kReduceOpCount; ++k) {
      const auto dtype = static_cast<DType>(d);
      const auto redop = static_cast<ReduceOp::Kind>(k);
      if (!why_unsupported(redop, dtype).empty()) continue;
      Case c = case_of(BenchOp::all_reduce, dtype, redop);
      const Oracle alone(c, 1, 42);
      Arena memory(64 * kShard);
      const View buffer(memory.data(), kShard, dtype);
      alone.fill(buffer, 0, 0);
      // With one rank every op but premul_sum gives its input back.
      const std::uint64_t wrong = alone.wrong(buffer, 0);
      if (redop == ReduceOp::premul_sum) {
        EXPECT_GT(wrong, 0U) << to_string(dtype);
      } else {
        EXPECT_EQ(wrong, 0U) << to_string(dtype) << ' ' << to_string(redop);
      }
    }
  }
}

std::int32_t combine(ReduceOp::Kind op, std::int32_t a, std::int32_t b) {
  switch (op) {
    case ReduceOp::sum:
      return a + b;
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return a < b ? a : b;
    case ReduceOp::max:
      return a > b ? a : b;
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    default:
      return a ^ b;
  }
}

// A reduction written a second time, over the inputs as they lie in memory.
TEST(Oracle, EveryReduceOpIsWhatItsNameSays) {
  for (const ReduceOp::Kind redop : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                                     ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
    World world(case_of(BenchOp::all_reduce, DType::i32, redop));
    world.poison();
    for (int rank = 0; rank < kRanks; ++rank) {
      auto* output = static_cast<std::int32_t*>(world.op<AllReduce>(rank).output.data);
      for (std::size_t i = 0; i < kShard; ++i) {
        for (int from = 0; from < kRanks; ++from) {
          const auto* input =
              static_cast<const std::int32_t*>(world.op<AllReduce>(from).input.data);
          output[i] = from == 0 ? input[i] : combine(redop, output[i], input[i]);
        }
      }
    }
    EXPECT_EQ(world.wrong(), 0U) << to_string(redop);
  }
}

// Rank 0 of an exscan has no result: whatever lies there is right.
TEST(Oracle, AScanGoesUpToItsRankAndAnExscanToTheOneBefore) {
  for (const Place place : {Place::out, Place::in}) {
    World inclusive(case_of(BenchOp::scan, DType::i32, ReduceOp::sum, place));
    World exclusive(case_of(BenchOp::exscan, DType::i32, ReduceOp::sum, place));
    inclusive.poison();
    exclusive.poison();
    std::vector<std::int32_t> sum(kShard, 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto* input = static_cast<const std::int32_t*>(inclusive.op<Scan>(rank).input.data);
      if (rank > 0) copy(exclusive.op<Exscan>(rank).output, ConstView(sum));
      for (std::size_t i = 0; i < kShard; ++i) sum[i] += input[i];
      copy(inclusive.op<Scan>(rank).output, ConstView(sum));
    }
    EXPECT_EQ(inclusive.wrong(), 0U);
    EXPECT_EQ(exclusive.wrong(), 0U);
    static_cast<std::int32_t*>(inclusive.op<Scan>(0).output.data)[5] += 1;
    static_cast<std::int32_t*>(exclusive.op<Exscan>(1).output.data)[5] += 1;
    EXPECT_EQ(inclusive.wrong(), 1U);
    EXPECT_EQ(exclusive.wrong(), 1U);
  }
}

TEST(Oracle, HashFollowsEveryByte) {
  std::vector<unsigned char> bytes(37, 1);
  const std::uint64_t before = hash_bytes(bytes.data(), bytes.size());
  for (unsigned char& byte : bytes) {
    byte ^= 1;
    EXPECT_NE(hash_bytes(bytes.data(), bytes.size()), before);
    byte ^= 1;
  }
  EXPECT_EQ(hash_bytes(nullptr, 0), hash_bytes(bytes.data(), 0));
}

}}  // namespace c10d::bench
