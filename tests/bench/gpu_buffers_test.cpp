// SPDX-License-Identifier: BSD-3-Clause
// What stands in GPU memory, and how ops on it are timed, on the stand-in for the driver.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "bench/measure/block_runner.h"
#include "bench/measure/buffers.h"
#include "bench/measure/case_list.h"
#include "bench/measure/gpu.h"
#include "bench/measure/subject.h"
#include "bench/meeting/shared_page.h"
#include "c10d/store.h"

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

// An all_reduce of a single rank, which is a copy, but for one that is left out.
class Copies final : public Subject {
 public:
  Copies(const GpuSeat& seat, int left_out) : seat_(seat), left_out_(left_out) {}
  Support supports(const Query&) const override { return {}; }
  std::string description() const override { return ""; }
  void run(std::span<const Op> ops, Flight) override {
    const auto& op = std::get<AllReduce>(ops[0]);
    if (calls_++ != left_out_) cuda::copy(op.output, op.input, seat_.stream);
  }
  int calls() const { return calls_; }

 private:
  const GpuSeat& seat_;
  const int left_out_;
  int calls_ = 0;
};

// Graphs of `kGraphOps` that go once round the buffers are captured, and from then on nothing is
// called.
class InGraphs : public testing::TestWithParam<Cache> {
 protected:
  static constexpr int kGraphOps = 4;
  static constexpr int kNone = -1;

  explicit InGraphs(int left_out = kNone)
      : subject_(seat_, left_out), runner_(page_, subject_, buffers_, settings()) {
    runner_.capture();
    captured_ = subject_.calls();
  }
  static BlockRunner::Settings settings() {
    BlockRunner::Settings settings;
    settings.graph_ops = kGraphOps;
    return settings;
  }

  const std::shared_ptr<Store> store_ = make_hash_store();
  SharedPage page_{*store_, 0, 1, std::chrono::seconds(20)};
  const Case case_ = case_of(GetParam(), Place::out);
  const GpuSeat seat_{0};
  Arena input_{memory_of(case_, 1, 1).input, seat_}, output_{memory_of(case_, 1, 1).output, seat_};
  Buffers buffers_{case_, 0, 1, 1, 42, input_, output_};
  Copies subject_;
  BlockRunner runner_;
  int captured_ = 0;
};

TEST_P(InGraphs, OpsAreTimedOneByOneAndChecked) {
  const auto sets = static_cast<int>(buffers_.sets());
  EXPECT_EQ(captured_, (sets + kGraphOps - 1) / kGraphOps * kGraphOps);
  EXPECT_EQ(runner_.check(false).wrong, 0U);
  runner_.warm_up(0, 1);
  const auto before = std::chrono::steady_clock::now();
  const CellRecord cell = runner_.measure(50, 3600);
  const std::chrono::duration<double, std::micro> whole = std::chrono::steady_clock::now() - before;
  EXPECT_EQ(runner_.check(true).wrong, 0U);
  EXPECT_EQ(runner_.failure(), "");
  EXPECT_EQ(subject_.calls(), captured_);
  EXPECT_EQ(cell.burst, 20);
  EXPECT_EQ(cell.samples.size(), 50U);
  const double all = std::accumulate(cell.samples.begin(), cell.samples.end(), 0.0) * cell.burst;
  EXPECT_LE(all, whole.count()) << "the batches, of 20 ops each";
  EXPECT_LE(*cell.cpu_us * cell.burst, whole.count());
}

class OneOpInAGraphIsMissing : public InGraphs {
 protected:
  OneOpInAGraphIsMissing() : InGraphs(1) {}
};

// The other ops of a graph may write where it should have.
TEST_P(OneOpInAGraphIsMissing, TheCheckFindsIt) {
  EXPECT_EQ(runner_.check(false).wrong, buffers_.sets() > 1 ? case_.shard : 0);
}

INSTANTIATE_TEST_SUITE_P(Buffers, InGraphs, testing::Values(Cache::hot, Cache::rotate));
INSTANTIATE_TEST_SUITE_P(Buffers, OneOpInAGraphIsMissing,
                         testing::Values(Cache::hot, Cache::rotate));

}}  // namespace c10d::bench
