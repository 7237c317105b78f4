// SPDX-License-Identifier: BSD-3-Clause
#include "bench/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/bandwidth.h"
#include "bench/options.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

Sweep sweep_of(std::vector<BenchOp> ops, std::vector<std::uint64_t> sizes) {
  return {std::move(ops), {DType::f32}, {ReduceOp::sum}, {0}, {Place::out}, std::move(sizes)};
}

TEST(Plan, OpsAreOneWordAndNamedWhenMisspelt) {
  EXPECT_EQ(bench_op_from_string("all_reduce"), BenchOp::all_reduce);
  EXPECT_EQ(bench_op_from_string("recv"), BenchOp::send);
  try {
    bench_op_from_string("allreduce");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean all_reduce?"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(bench_op_from_string("zzz"), InvalidArgument);
}

TEST(Plan, SizesGrowByFactorOrStep) {
  EXPECT_EQ(size_range(8, 16 << 20, 32, 0),
            (std::vector<std::uint64_t>{8, 256, 8192, 262144, 8388608}));
  EXPECT_EQ(size_range(1, 3, 1.1, 0), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(size_range(0, 20, 2, 10), (std::vector<std::uint64_t>{0, 10, 20}));
}

TEST(Plan, SizesAreWholeShards) {
  const std::vector<Case> cases = expand(sweep_of({BenchOp::all_gather}, {1, 8, 12, 30}), 3);
  std::vector<std::uint64_t> bytes;
  for (const Case& c : cases) {
    bytes.push_back(c.bytes);
    EXPECT_EQ(c.bytes, c.shard * 3 * 4);
  }
  EXPECT_EQ(bytes, (std::vector<std::uint64_t>{12, 24}))
      << "rounded down, one element per shard at least, no twins";
}

TEST(Plan, LeavesOutWhatMakesNoSense) {
  Sweep sweep = sweep_of({BenchOp::all_reduce, BenchOp::barrier, BenchOp::broadcast}, {64, 128});
  sweep.redops = {ReduceOp::sum, ReduceOp::avg};
  sweep.dtypes = {DType::f32, DType::i32};
  sweep.roots = {0, 1};
  const std::vector<Case> cases = expand(sweep, 2);
  const auto count = [&](BenchOp op) {
    return std::count_if(cases.begin(), cases.end(), [&](const Case& c) { return c.op == op; });
  };
  EXPECT_EQ(count(BenchOp::all_reduce), 2 * 3) << "avg of i32 is no number";
  EXPECT_EQ(count(BenchOp::barrier), 1);
  EXPECT_EQ(count(BenchOp::broadcast), 2 * 2 * 2)
      << "sizes x dtypes x roots, once and not per reduce op";
  std::set<CellKey> keys;
  for (const Case& c : cases) EXPECT_TRUE(keys.insert(key_of(c)).second) << "a cell twice";
}

TEST(Plan, OrderIsAPermutationThatFollowsFromTheSeed) {
  std::set<std::vector<std::size_t>> orders;
  for (int block = 0; block < 20; ++block) {
    auto order = block_order(4, true, 42, 1, 2, block);
    EXPECT_EQ(order, block_order(4, true, 42, 1, 2, block));
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
  }
  EXPECT_GT(orders.size(), 5U);
  EXPECT_EQ(block_order(3, false, 42, 0, 0, 1), (std::vector<std::size_t>{2, 1, 0}));
}

TEST(Plan, WindowIsBounded) {
  Case c;
  c.op = BenchOp::isend;
  c.bytes = 8 << 20;
  EXPECT_EQ(window_of(c, 16), 8);
  c.bytes = 1 << 10;
  EXPECT_EQ(window_of(c, 16), 16);
  c.bytes = std::uint64_t{1} << 30;
  EXPECT_EQ(window_of(c, 16), 1);
}

TEST(Plan, BurstsAreOfSmallOps) {
  EXPECT_EQ(burst_of(0), 64);
  EXPECT_EQ(burst_of(8), 64);
  EXPECT_EQ(burst_of(64 << 10), 64);
  EXPECT_EQ(burst_of(1 << 20), 4);
  EXPECT_EQ(burst_of(16 << 20), 1);
}

TEST(Bandwidth, FactorsAreNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(BenchOp::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(BenchOp::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(BenchOp::broadcast, 4), 1);
  CellRecord cell;
  cell.us.p50 = 100;
  put_bandwidth({BenchOp::all_reduce, DType::f32, ReduceOp::sum, 0, Place::out, 1'000'000, 250'000},
                2, cell);
  EXPECT_DOUBLE_EQ(*cell.alg, 10);
  EXPECT_DOUBLE_EQ(*cell.mem, 40);
  EXPECT_FALSE(cell.bus);
}

Parsed parse(std::vector<const char*> words) {
  words.insert(words.begin(), "c10d-bench");
  return parse_options(static_cast<int>(words.size()), words.data());
}

TEST(Options, ReadTheCommandOfTheReadme) {
  const Parsed parsed =
      parse({"compare", "-n",    "2",      "-B", "native,gloo,mpi", "all", "-b",       "8",
             "-e",      "16M",   "-f",     "32", "--launches",      "2",   "--blocks", "3",
             "--time",  "0.05s", "--json", "f",  "--dry_run"});
  ASSERT_FALSE(parsed.exit_code);
  const Options& options = parsed.options;
  EXPECT_EQ(options.command, Command::compare);
  EXPECT_EQ(options.ranks, 2);
  EXPECT_EQ(options.backends, (std::vector<std::string>{"native", "gloo", "mpi"}));
  EXPECT_EQ(options.sweep.ops.size(), op_facts().size());
  EXPECT_EQ(options.sweep.sizes.size(), 5U);
  EXPECT_DOUBLE_EQ(options.seconds, 0.05);
  EXPECT_TRUE(options.dry_run);
}

TEST(Options, MistakesAreExitCodeTwo) {
  EXPECT_EQ(parse({"compare", "allreduce"}).exit_code, 2);
  EXPECT_EQ(parse({"compare", "-b", "2K", "-e", "1K"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "-d", "f33"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "--no-such-option"}).exit_code, 2);
  EXPECT_EQ(parse({}).exit_code, 2);
  EXPECT_EQ(parse({"--help"}).exit_code, 0);
}

TEST(Options, ARootThatIsNoRankIsRefused) {
  const Parsed parsed = parse({"run", "broadcast", "--root", "2"});
  ASSERT_FALSE(parsed.exit_code);
  EXPECT_THROW(cases_of(parsed.options, 2), InvalidArgument);
}

}  // namespace
}  // namespace c10d::bench
