// SPDX-License-Identifier: BSD-3-Clause
// process_group.h: what scan() and exscan() promise beside the reductions, which conformance
// checks.
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

class Scans : public OnBackend {};

// Small and large, since backends take another way for each.
constexpr std::size_t kCounts[] = {1, 3000, 40000};

TEST_P(Scans, AreTheReductionUpToThisRankAndUpToTheOneBefore) {
  run(3, [](ProcessGroup& group) {
    const std::int32_t up_to[] = {1, 3, 6}, before[] = {-7, 1, 3};
    for (const std::size_t count : kCounts) {
      const std::vector<std::int32_t> input(count, group.rank() + 1);
      std::vector<std::int32_t> output(count, -7);
      group.exscan(output, input);
      EXPECT_EQ(output, std::vector(count, before[group.rank()])) << "rank 0 keeps what it had";
      group.scan(output, input);
      EXPECT_EQ(output, std::vector(count, up_to[group.rank()]));
      EXPECT_EQ(input, std::vector(count, group.rank() + 1));
    }
  });
}

TEST_P(Scans, InPlaceLeaveRank0OfAnExclusiveOneItsInput) {
  run(3, [](ProcessGroup& group) {
    const std::int64_t up_to[] = {1, 3, 6}, before[] = {1, 1, 3};
    for (const std::size_t count : kCounts) {
      std::vector<std::int64_t> data(count, group.rank() + 1);
      group.async().scan(data).wait();
      EXPECT_EQ(data, std::vector(count, up_to[group.rank()]));
      data.assign(count, group.rank() + 1);
      group.async().exscan(data).wait();
      EXPECT_EQ(data, std::vector(count, before[group.rank()]));
    }
  });
}

TEST_P(Scans, OfOneRankAreItsInputAndNothing) {
  run(1, [](ProcessGroup& group) {
    const std::array<float, 2> input{3, 4};
    std::array<float, 2> output{1, 2};
    group.exscan(output, input);
    EXPECT_EQ(output, (std::array<float, 2>{1, 2}));
    group.scan(output, input, ReduceOp::premul(2));
    EXPECT_EQ(output, (std::array<float, 2>{6, 8}));
  });
}

TEST_P(Scans, NeedNoReduceOpBeforeTheOptions) {
  run(2, [](ProcessGroup& group) {
    const CallOptions options{.timeout = kTimeout};
    const std::array<int, 1> input{5};
    std::array<int, 1> output{};
    group.scan(output, input, options);
    EXPECT_EQ(output[0], group.rank() == 0 ? 5 : 10);
    group.async().scan(output, options).wait();
    EXPECT_EQ(output[0], group.rank() == 0 ? 5 : 15);
    group.exscan(output, options);
    EXPECT_EQ(output[0], 5);
    group.async().exscan(output, input, options).wait();
    EXPECT_EQ(output[0], 5);
  });
}

TEST_P(Scans, HaveNoAvgAndSayWhy) {
  run(2, [](ProcessGroup& group) {
    std::array<float, 1> data{1};
    for (const OpKind op : {OpKind::scan, OpKind::exscan}) {
      const Support support = group.supports({.op = op, .reduce_op = ReduceOp::avg});
      EXPECT_FALSE(support);
      EXPECT_EQ(support.reason, why_unsupported(op, ReduceOp::avg, DType::f32));
    }
    EXPECT_EQ(code_of([&] { group.scan(data, ReduceOp::avg); }), Code::unsupported);
    EXPECT_EQ(code_of([&] { group.exscan(data, ReduceOp::avg); }), Code::unsupported);
    expect_usable(group);
  });
}

TEST_P(Scans, HaveTheBitsOfAnAllReduceWhereTheOrderIsFixed) {
  run(5, [](ProcessGroup& group) {
    if (!group.reduces_along_rank_tree()) return;
    std::vector<float> input(1000), sum(input.size()), output(input.size()), before(input.size());
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = std::sqrt(static_cast<float>(i * 5) + static_cast<float>(group.rank()));
    group.scan(output, input);
    group.exscan(before, input);
    for (int last = 0; last < group.size(); ++last) {
      if (group.rank() > last + 1) continue;
      std::vector<int> ranks(static_cast<std::size_t>(last) + 1);
      std::iota(ranks.begin(), ranks.end(), 0);
      if (group.rank() <= last) {
        group.new_group(ranks).all_reduce(sum, input);
        if (group.rank() == last) {
          EXPECT_EQ(output, sum);
          if (last + 1 < group.size()) group.send(sum, last + 1);
        }
      } else {
        group.recv(sum, last);
        EXPECT_EQ(before, sum);
      }
    }
  });
}

C10D_ON_EACH_BACKEND(Scans);

}}  // namespace c10d::contract
