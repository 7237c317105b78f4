// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <variant>

namespace c10d::bench { namespace {

constexpr std::uint64_t kWalk = 100'000;

Case case_of(BenchOp op, Cache cache, Place place, int concurrent) {
  Case c;
  c.op = op;
  c.place = place;
  c.shard = 24;
  c.bytes = c.shard * 4;
  c.cache = cache;
  c.concurrent = concurrent;
  c.walk = cache == Cache::rotate ? kWalk : 0;
  return c;
}

// What a single rank's op does: a copy. Returns where to.
std::set<const void*> run_alone(const Buffers& buffers) {
  std::set<const void*> outputs;
  for (const Op& op : buffers.ops()) {
    const auto& call = std::get<AllReduce>(op);
    outputs.insert(call.output.data);
    if (call.output.data != call.input.data)
      std::memcpy(call.output.data, call.input.data, call.input.bytes());
  }
  return outputs;
}

class EveryState : public testing::TestWithParam<std::tuple<Cache, Place, int>> {};

// Whichever set has its turn: its input is whole, its output is what is checked, and no two ops at
// once share a byte.
TEST_P(EveryState, TheCheckSeesWhatTheOpsDid) {
  const auto [cache, place, concurrent] = GetParam();
  const Case c = case_of(BenchOp::all_reduce, cache, place, concurrent);
  const Footprint bytes = memory_of(c, 1, 1);
  Arena input(bytes.input);
  Arena output(bytes.output);
  Buffers buffers(c, 0, 1, 1, 42, input, output);
  std::set<const void*> seen;
  for (int turn = 0; turn < 50; ++turn) {
    ASSERT_EQ(buffers.ops().size(), static_cast<std::size_t>(concurrent));
    buffers.poison_output();
    if (place == Place::out) {
      EXPECT_EQ(buffers.wrong(), c.shard * static_cast<std::uint64_t>(concurrent)) << turn;
    }
    const std::set<const void*> outputs = run_alone(buffers);
    EXPECT_EQ(outputs.size(), static_cast<std::size_t>(concurrent));
    seen.insert(outputs.begin(), outputs.end());
    EXPECT_EQ(buffers.wrong(), 0U) << turn;
    buffers.refresh(true);
  }
  const std::uint64_t turns = std::min<std::uint64_t>(sets_of(c, 1, 1), 50);
  EXPECT_EQ(seen.size(), turns * static_cast<std::uint64_t>(concurrent)) << "no set comes twice";
}

INSTANTIATE_TEST_SUITE_P(Buffers, EveryState,
                         testing::Combine(testing::Values(Cache::hot, Cache::rotate, Cache::cold),
                                          testing::Values(Place::out, Place::in),
                                          testing::Values(1, 3)));

TEST(Buffers, RotatingSetsAreMoreThanWasAskedFor) {
  for (const Place place : {Place::out, Place::in}) {
    const Case c = case_of(BenchOp::all_gather, Cache::rotate, place, 2);
    const Footprint one = stride_of(c, 4, 1);
    const std::uint64_t moving = 2 * (place == Place::in ? one.output : one.sum());
    EXPECT_GT(sets_of(c, 4, 1) * moving, kWalk);
    EXPECT_LE((sets_of(c, 4, 1) - 1) * moving, kWalk);
  }
  EXPECT_EQ(sets_of(case_of(BenchOp::all_gather, Cache::hot, Place::out, 1), 4, 1), 1U);
}

}}  // namespace c10d::bench
