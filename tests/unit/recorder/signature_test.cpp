// SPDX-License-Identifier: BSD-3-Clause
#include "src/recorder/signature.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace c10d { namespace {

constexpr int kSize = 2;
std::array<float, 8> g_here, g_there;
const std::array<std::size_t, 2> g_even{4, 4}, g_uneven{3, 5};

View f32(std::size_t count) { return {g_here.data(), count, DType::f32}; }
ConstView f32_there(std::size_t count) { return {g_there.data(), count, DType::f32}; }
Signature of(const Op& op) { return signature_of(op, kSize); }

TEST(Signature, IsTheSameWhereverMemoryLies) {
  EXPECT_EQ(of(AllReduce{f32(4), f32(4), {}}), of(AllReduce{f32(4), f32_there(4), {}}));
}

// What a rank that is not the root leaves out must not show.
TEST(Signature, IsTheSameOnRootAndOthers) {
  EXPECT_EQ(of(Gather{f32(8), f32_there(4), 0}), of(Gather{{}, f32_there(4), 0}));
  EXPECT_EQ(of(GatherV{f32(8), f32_there(4), g_even, 1}), of(GatherV{{}, f32_there(4), g_even, 1}));
  EXPECT_EQ(of(Scatter{f32(4), f32_there(8), 0}), of(Scatter{f32(4), {}, 0}));
  EXPECT_EQ(of(Reduce{f32(4), f32_there(4), {}, 0}), of(Reduce{{}, f32_there(4), {}, 0}));
  EXPECT_EQ(of(Broadcast{f32(4), f32_there(4), 0}), of(Broadcast{f32(4), {}, 0}));
}

// Ranks of the same call with counts per rank have shards of different sizes.
TEST(Signature, IsTheSameForEachShardOfUnevenCounts) {
  EXPECT_EQ(of(AllGatherV{f32(8), f32_there(3), g_uneven}),
            of(AllGatherV{f32(8), f32_there(5), g_uneven}));
  EXPECT_EQ(of(AllToAllV{f32(8), f32_there(8), g_even, g_even}),
            of(AllToAllV{f32(7), f32_there(5), g_uneven, g_even}));
}

TEST(Signature, AnEmptyShardKeepsItsDType) {
  const std::vector<std::size_t> counts = {4, 0, 0, 0};
  std::vector<float> some(4), none;
  EXPECT_EQ(of(GatherV{some, some, counts, 0}), of(GatherV{{}, none, counts, 0}));
  EXPECT_EQ(of(ScatterV{some, some, counts, 0}), of(ScatterV{none, {}, counts, 0}));
}

TEST(Signature, DiffersWithEverythingThatRanksMustAgreeOn) {
  const ConstView ints(g_there.data(), 4, DType::i32);
  const View ints_out(g_here.data(), 4, DType::i32);
  const Op ops[] = {
      AllReduce{f32(4), f32_there(4), {}},
      AllReduce{f32(5), f32_there(5), {}},
      AllReduce{f32(0), f32_there(0), {}},
      AllReduce{ints_out, ints, {}},
      AllReduce{f32(4), f32_there(4), ReduceOp::max},
      AllReduce{f32(4), f32_there(4), ReduceOp::premul(2)},
      AllReduce{f32(4), f32_there(4), ReduceOp::premul(3)},
      Reduce{f32(4), f32_there(4), {}, 0},
      Reduce{f32(4), f32_there(4), {}, 1},
      Broadcast{f32(4), f32_there(4), 0},
      AllGather{f32(8), f32_there(4)},
      AllGatherV{f32(8), f32_there(4), g_even},
      AllGatherV{f32(8), f32_there(3), g_uneven},
      Barrier{},
  };
  std::set<std::uint64_t> hashes;
  for (const Op& op : ops) hashes.insert(hash_of(of(op)));
  EXPECT_EQ(hashes.size(), std::size(ops));
}

TEST(Signature, IsDescribedAsPeopleWriteCalls) {
  EXPECT_EQ(describe(of(AllReduce{f32(4), f32(4), {}})), "all_reduce(sum, f32 x 4)");
  EXPECT_EQ(describe(of(Broadcast{f32(4), f32(4), 1})), "broadcast(f32 x 4, root 1)");
  EXPECT_EQ(describe(of(Barrier{})), "barrier()");
  EXPECT_EQ(describe(of(Send{f32(2), 3, 9})), "send(f32 x 2, to 3, tag 9)");
  EXPECT_EQ(describe(of(Recv{f32(2), 3, 9})), "recv(f32 x 2, from 3, tag 9)");
  EXPECT_EQ(describe(of(Recv{f32(2), kAnySource, 9})), "recv(f32 x 2, from any rank, tag 9)");
  EXPECT_EQ(describe(of(AllReduce{f32(1), f32(1), ReduceOp::premul(0.5)})),
            "all_reduce(premul_sum, factor 0.5, f32 x 1)");
}

TEST(Signature, TheFirstDifferenceIsNamed) {
  const Signature base = of(AllReduce{f32(4), f32(4), {}});
  EXPECT_EQ(first_difference(base, base), "");
  EXPECT_EQ(first_difference(base, of(Barrier{})), "op all_reduce against barrier");
  EXPECT_EQ(first_difference(base, of(AllReduce{f32(4), f32(4), ReduceOp::min})),
            "reduce op sum against min");
  EXPECT_EQ(first_difference(base, of(AllReduce{f32(5), f32(5), {}})), "count 4 against 5");
}

}}  // namespace c10d
