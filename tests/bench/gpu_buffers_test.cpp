// SPDX-License-Identifier: BSD-3-Clause
// What stands in GPU memory, on the stand-in for the driver.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <tuple>
#include <variant>
#include <vector>

#include "bench/measure/buffers.h"
#include "bench/measure/case_list.h"
#include "bench/measure/gpu.h"

namespace c10d::bench { namespace {

Case case_of(Cache cache, Place place) {
  Case c;
  c.place = place;
  c.shard = 24;
  c.bytes = c.shard * 4;
  c.cache = cache;
  c.walk = cache == Cache::rotate ? 100'000 : 0;
  return c;
}

class OnAGpu : public testing::TestWithParam<std::tuple<Cache, Place>> {};

// Whichever set has its turn: its input is whole, its output is what is checked. A single rank's op
// is a copy.
TEST_P(OnAGpu, TheCheckSeesWhatTheOpDid) {
  const auto [cache, place] = GetParam();
  const Case c = case_of(cache, place);
  const Footprint bytes = memory_of(c, 1, 1);
  const GpuSeat seat(0);
  Arena input(bytes.input, seat), output(bytes.output, seat);
  Buffers buffers(c, 0, 1, 1, 42, input, output);
  EXPECT_EQ(buffers.keeps_inputs(), place == Place::out);
  std::set<const void*> seen;
  for (std::uint64_t turn = 0; turn < sets_of(c, 1, 1); ++turn) {
    ASSERT_EQ(buffers.ops().size(), 1U);
    const auto& call = std::get<AllReduce>(buffers.ops()[0]);
    EXPECT_EQ(call.input.device, seat.device);
    if (place == Place::out) {
      buffers.poison_output();
      EXPECT_EQ(buffers.wrong(), c.shard) << "set " << turn;
      cuda::copy(call.output, call.input, seat.stream);
    }
    EXPECT_EQ(buffers.wrong(), 0U) << "set " << turn;
    cuda::fill(call.output, 0x11, seat.stream);
    EXPECT_GT(buffers.wrong(), 0U) << "set " << turn;
    seen.insert(call.output.data);
    buffers.refresh(true);
  }
  EXPECT_EQ(seen.size(), sets_of(c, 1, 1)) << "no set comes twice";
}

INSTANTIATE_TEST_SUITE_P(Buffers, OnAGpu,
                         testing::Combine(testing::Values(Cache::hot, Cache::rotate),
                                          testing::Values(Place::out, Place::in)));

TEST(OnAGpu, RotatingSetsAreFourTimesTheL2) {
  CaseOptions options;
  options.cuda = true;
  options.sweep = {{BenchOp::all_reduce}, {DType::f32},       {ReduceOp::sum}, {0},
                   {Place::out},          {std::uint64_t{8}}, {Cache::rotate}};
  const std::vector<Case> cases = cases_of(options, 2);
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_GE(memory_of(cases, 2, 1).sum(), 4 * cuda::device_info(0).l2_bytes);
}

// The stand-in's events have the times of the host.
TEST(OnAGpu, ATimerTakesWhatIsOnTheStream) {
  const GpuSeat seat(0);
  const GpuTimer timer(seat);
  Arena memory(std::size_t{1} << 24, seat);
  const auto before = std::chrono::steady_clock::now();
  timer.start();
  for (int i = 0; i < 4; ++i) cuda::fill(memory.view(0, memory.bytes(), DType::u8), 1, seat.stream);
  const std::int64_t took = timer.stop();
  const std::chrono::nanoseconds whole = std::chrono::steady_clock::now() - before;
  EXPECT_GT(took, 0);
  EXPECT_LE(took, whole.count());
}

}}  // namespace c10d::bench
