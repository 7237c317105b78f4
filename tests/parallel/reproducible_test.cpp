// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/reproducible.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#include "c10d/parallel/philox.h"
#include "c10d/spi/backend.h"
#include "src/parallel/common/merge_plan.h"
#include "tests/contract/ranks.h"

namespace c10d::parallel { namespace {

using contract::OnBackend;

// The first values of a shard. Their sums round, so that another order gives other bits.
std::span<const float> leaf(int shard, std::size_t count) {
  constexpr std::size_t kMost = 10007;
  static const auto all = [] {
    std::vector<std::vector<float>> shards(64);
    for (std::size_t s = 0; s < shards.size(); ++s) {
      PhiloxStream random(7, 0, s, 0);
      for (std::size_t i = 0; i < kMost; ++i) {
        const int exponent = static_cast<int>(random.next() % 12) - 6;
        shards[s].push_back(std::ldexp(random.uniform() - 0.5f, exponent));
      }
    }
    return shards;
  }();
  return std::span(all[static_cast<std::size_t>(shard)]).first(count);
}

// The definition of the tree, written as it stands in the header.
std::vector<float> tree(int first, int last, std::size_t count) {
  if (last - first == 1) {
    const auto values = leaf(first, count);
    return {values.begin(), values.end()};
  }
  const int mid = (first + last) / 2;
  std::vector<float> left = tree(first, mid, count);
  const std::vector<float> right = tree(mid, last, count);
  for (std::size_t i = 0; i < count; ++i) left[i] += right[i];
  return left;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

ShardAccumulator accumulated(int shards, ShardRange owned, std::size_t count) {
  ShardAccumulator sums(shards, owned, count);
  for (int shard = owned.first; shard < owned.last; ++shard) sums.add(leaf(shard, count));
  return sums;
}

TEST(Shards, CoverAllOnceInOrder) {
  for (const int shards : {1, 2, 7, 16, 64, 65536})
    for (int size = 1; size <= 9; ++size) {
      int next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const ShardRange range = shards_of(shards, rank, size);
        EXPECT_EQ(range.first, next);
        EXPECT_LE(range.count(), (shards + size - 1) / size);
        EXPECT_GE(range.count(), shards < size ? 0 : 1);
        next = range.last;
      }
      EXPECT_EQ(next, shards);
    }
  EXPECT_THROW(shards_of(0, 0, 1), InvalidArgument);
  EXPECT_THROW(shards_of(65537, 0, 1), InvalidArgument);
  EXPECT_THROW(shards_of(4, 2, 2), InvalidArgument);
}

TEST(Shards, CutABatchBySampleAlone) {
  EXPECT_EQ(samples_of(10, 4, 0), (SampleRange{0, 2}));
  EXPECT_EQ(samples_of(10, 4, 3), (SampleRange{7, 10}));
  EXPECT_EQ(samples_of(3, 4, 0).count(), 0);  // a short batch leaves shards empty
  constexpr std::int64_t kHuge = std::int64_t{1} << 60;
  EXPECT_EQ(samples_of(kHuge, 65536, 65535).last, kHuge);
  EXPECT_THROW(samples_of(-1, 4, 0), InvalidArgument);
  EXPECT_THROW(samples_of(8, 0, 0), InvalidArgument);
  EXPECT_THROW(samples_of(8, 4, 4), InvalidArgument);
  EXPECT_THROW(samples_of(8, 4, -1), InvalidArgument);
}

// Of every range, and with the slot of each subtree where its sum then is.
TEST(Shards, PlansTakeAsFewSlotsAsTheySay) {
  for (int shards = 1; shards <= 24; ++shards) {
    const int levels = std::bit_width(static_cast<unsigned>(shards - 1));  // log2, rounded up
    for (int first = 0; first <= shards; ++first)
      for (int last = first; last <= shards; ++last) {
        const ShardRange owned{first, last};
        const auto plan = merge_plan(shards, owned);
        const std::size_t subtrees = subtrees_of(shards, owned).size();
        ASSERT_EQ(plan.size(), static_cast<std::size_t>(owned.count()));
        EXPECT_GE(slots_of(plan), std::max<int>(1, static_cast<int>(subtrees)));
        EXPECT_LE(slots_of(plan), subtrees > 1 ? 2 * levels : levels + 1) << shards;
      }
  }
  EXPECT_EQ(slots_of(merge_plan(3, {0, 3})), 3);
  EXPECT_EQ(slots_of(merge_plan(16, {1, 15})), 6);
}

TEST(Shards, SubtreesAreFewAndCoverTheRange) {
  // Partial sums of all ranks together, counted by hand for 16 shards.
  const std::vector<std::size_t> expected{1, 2, 5, 4, 5, 10, 9, 8};
  for (int size = 1; size <= 8; ++size) {
    std::size_t all = 0;
    for (int rank = 0; rank < size; ++rank) {
      const ShardRange owned = shards_of(16, rank, size);
      const auto subtrees = subtrees_of(16, owned);
      all += subtrees.size();
      int next = owned.first;
      for (const ShardRange& subtree : subtrees) {
        EXPECT_EQ(subtree.first, next);
        next = subtree.last;
      }
      EXPECT_EQ(next, owned.last);
    }
    EXPECT_EQ(all, expected[static_cast<std::size_t>(size - 1)]) << size << " ranks";
  }
}

TEST(Shards, AccumulateWithFewBuffers) {
  for (const int shards : {1, 2, 3, 16, 37, 64}) {
    EXPECT_LE(slots_of(merge_plan(shards, {0, shards})),
              1 + std::bit_width(static_cast<unsigned>(shards - 1)));
    const ShardAccumulator sums = accumulated(shards, {0, shards}, 5);
    const auto root = sums.partials();
    ASSERT_EQ(root.size(), 1u);
    EXPECT_TRUE(same_bits({static_cast<const float*>(root[0].data), 5}, tree(0, shards, 5)));
  }
}

TEST(Shards, AccumulatorRefusesMisuse) {
  ShardAccumulator sums(4, {0, 2}, 3);
  EXPECT_THROW(sums.partials(), std::logic_error);
  sums.add(leaf(0, 3));
  EXPECT_THROW(sums.add(leaf(1, 2)), InvalidArgument);
  sums.add(leaf(1, 3));
  EXPECT_THROW(sums.next(), std::logic_error);
  sums.reset();
  sums.add(leaf(0, 3));
  EXPECT_THROW(ShardAccumulator(4, {0, 2}, 3, DType::f16), InvalidArgument);
  EXPECT_THROW(sums.sum(), std::logic_error);  // shard 1 is missing
  ShardAccumulator two = accumulated(4, {1, 3}, 3);
  EXPECT_EQ(two.partials().size(), 2u);
  EXPECT_THROW(two.sum(), std::logic_error);
}

TEST(Shards, AddNothingButTheirOwnKind) {
  std::vector<float> to{1, 2}, one{3};
  std::vector<double> wide{1, 2};
  std::vector<std::int32_t> whole{1, 2};
  EXPECT_THROW(add_to(to, one), InvalidArgument);
  EXPECT_THROW(add_to(to, wide), InvalidArgument);
  EXPECT_THROW(add_to(whole, whole), InvalidArgument);
  add_to(wide, wide);
  EXPECT_EQ(wide, (std::vector<double>{2, 4}));
  EXPECT_EQ(to, (std::vector<float>{1, 2}));
}

template <class T>
void expect_quotients(double divisor) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values{1, -7, Limits::max(), Limits::min(), 5 * Limits::denorm_min(), T{0.1f}};
  std::vector<T> expected;
  for (const T value : values) expected.push_back(value / static_cast<T>(divisor));
  divide(values, divisor);
  EXPECT_EQ(values, expected) << divisor;
}

TEST(Shards, DivideRoundsOnce) {
  for (const double divisor : {3.0, 2.0, 64.0, -4.0, 0.5, 0x1p-126, 0x1p126, 0x1p127, 96.0}) {
    expect_quotients<float>(divisor);
    expect_quotients<double>(divisor);
  }
  // By the nearest f32, where that is not the divisor.
  expect_quotients<float>(16777217);
  expect_quotients<double>(16777217);
  std::vector<BFloat16> halves{BFloat16(3.0f)};
  divide(halves, 2);
  EXPECT_EQ(halves[0].bits(), 0x3fc0);  // 1.5
  std::vector<std::int32_t> whole{1};
  EXPECT_THROW(divide(whole, 2), InvalidArgument);
  divide(whole, 1);
  EXPECT_EQ(whole[0], 1);
}

// Published test vectors of the algorithm.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, ~std::uint64_t{0}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822u),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamsDifferInEveryKey) {
  const auto first = [](std::uint64_t seed, std::uint64_t step, std::uint64_t sample,
                        std::uint32_t layer) {
    return PhiloxStream(seed, step, sample, layer).next64();
  };
  const std::uint64_t base = first(1, 2, 3, 4);
  EXPECT_EQ(base, first(1, 2, 3, 4));
  for (const std::uint64_t other : {first(0, 2, 3, 4), first(1, 0, 3, 4), first(1, 2, 0, 4),
                                    first(1, 2, 3, 0), first(1, 2, 3 + (1ull << 32), 4)})
    EXPECT_NE(base, other);
}

// One draw after the other, two to a 64-bit one; below() redraws what would be unfair.
TEST(Philox, DrawsFollowOneAnother) {
  PhiloxStream singles(3, 1, 4, 1), pairs(3, 1, 4, 1), bounded(3, 1, 4, 1);
  std::map<std::uint64_t, int> seen;
  constexpr std::uint64_t kBound = 3;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t high = singles.next();
    const std::uint64_t draw = high << 32 | singles.next();
    EXPECT_EQ(pairs.next64(), draw);
    EXPECT_EQ(bounded.below(kBound), draw % kBound);  // none of these is unfair: 2^64 mod 3 = 1
    ++seen[draw % kBound];
  }
  EXPECT_EQ(seen.size(), kBound);
  for (const auto& [value, times] : seen) EXPECT_NEAR(times, 1000, 130) << value;  // 5 deviations
  constexpr std::uint64_t kHalf = (std::uint64_t{1} << 63) + 1;
  for (int i = 0; i < 100; ++i) EXPECT_LT(bounded.below(kHalf), kHalf);
  EXPECT_EQ(bounded.below(1), 0u);
}

TEST(Philox, UniformIsUniform) {
  PhiloxStream random(11, 0, 0, 0);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const float draw = random.uniform();
    ASSERT_GE(draw, 0);
    ASSERT_LT(draw, 1);
    sum += draw;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);  // five standard deviations
}

using TreeSumOn = OnBackend;

// Below and above the size at which the exchange changes; not a multiple of any group size.
constexpr std::size_t kCounts[] = {1, 77, 10007};

TEST_P(TreeSumOn, SameBitsAtEveryWorldSize) {
  for (int size = 1; size <= 8; ++size)
    run(size, [&](ProcessGroup& group) {
      for (const int shards : {3, 16}) {
        TreeSum tree_sum(group, shards);
        for (const std::size_t count : kCounts) {
          std::vector<float> expected = tree(0, shards, count);
          divide(expected, 37);
          const ShardAccumulator sums = accumulated(shards, tree_sum.owned(), count);
          std::vector<float> out(count);
          tree_sum.all_reduce(out, sums.partials(), 37);
          EXPECT_TRUE(same_bits(out, expected))
              << shards << " shards, " << count << " elements, " << size << " ranks";
        }
      }
    });
}

// `native` under another name, which says whether it reduces along the tree and counts the calls
// that it gets.
struct Claim {
  bool along_rank_tree;
  std::atomic<int> all_reduces = 0, others = 0;
};
class Claiming final : public Backend {
 public:
  Claiming(std::unique_ptr<Backend> below, std::shared_ptr<Claim> claim)
      : below_(std::move(below)), claim_(std::move(claim)) {}
  Support supports(const Query& query) const override { return below_->supports(query); }
  bool reduces_along_rank_tree() const noexcept override { return claim_->along_rank_tree; }
  Work launch(const Call& call) override {
    ++(kind_of(call.op) == OpKind::all_reduce ? claim_->all_reduces : claim_->others);
    return below_->launch(call);
  }
  Allocation allocate(std::size_t bytes, Device device, Deadline deadline) override {
    return below_->allocate(bytes, device, deadline);
  }
  std::unique_ptr<Backend> new_group(BackendContext context,
                                     const std::vector<int>& parents) override {
    return std::make_unique<Claiming>(below_->new_group(std::move(context), parents), claim_);
  }
  void abort() noexcept override { below_->abort(); }
  void shutdown(Deadline deadline) override { below_->shutdown(deadline); }
  std::string description() const override { return "a claim on " + below_->description(); }

 private:
  const std::unique_ptr<Backend> below_;
  const std::shared_ptr<Claim> claim_;
};

TEST(TreeSum, TakesOneAllReduceWhereTheBackendReducesAlongTheTree) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 77;
  const std::vector<float> expected = tree(0, kRanks, kCount);
  for (const bool along_rank_tree : {false, true}) {
    const auto claim = std::make_shared<Claim>();
    claim->along_rank_tree = along_rank_tree;
    const std::string name = along_rank_tree ? "claims_a_tree" : "claims_no_tree";
    register_backend(name, [claim](BackendContext context) {
      return std::make_unique<Claiming>(make_backend("native", std::move(context)), claim);
    });
    contract::run_ranks(name, kRanks, [&](ProcessGroup& group) {
      EXPECT_EQ(group.reduces_along_rank_tree(), along_rank_tree);
      TreeSum tree_sum(group, kRanks);
      const ShardAccumulator sums = accumulated(kRanks, tree_sum.owned(), kCount);
      std::vector<float> out(kCount);
      tree_sum.all_reduce(out, sums.partials());
      EXPECT_TRUE(same_bits(out, expected));
    });
    EXPECT_EQ(claim->all_reduces, along_rank_tree ? kRanks : 0);
    EXPECT_EQ(claim->others > 0, !along_rank_tree);
  }
}

TEST_P(TreeSumOn, SumsInPlace) {
  constexpr std::size_t kCount = 10007;
  const std::vector<float> expected = tree(0, 16, kCount);
  for (const int size : {1, 2, 3, 4})
    run(size, [&](ProcessGroup& group) {
      TreeSum tree_sum(group, 16);
      ShardAccumulator sums = accumulated(16, tree_sum.owned(), kCount);
      const auto partials = sums.partials();
      sums.reset();
      const View out = sums.next();  // the memory of partials[0]
      ASSERT_EQ(out.data, partials[0].data);
      tree_sum.all_reduce(out, partials);
      EXPECT_TRUE(same_bits({static_cast<const float*>(out.data), kCount}, expected));
    });
}

// In place, and two pieces of 2 MiB with a part of a third: what is known of a short sum, repeated.
TEST_P(TreeSumOn, LongSumsGoPieceByPiece) {
  constexpr std::size_t kCount = 10007, kTimes = 110;
  const auto repeated = [](std::span<const float> once) {
    std::vector<float> all;
    for (std::size_t i = 0; i < kTimes; ++i) all.insert(all.end(), once.begin(), once.end());
    return all;
  };
  const std::vector<float> expected = repeated(tree(0, 16, kCount));
  run(3, [&](ProcessGroup& group) {
    TreeSum tree_sum(group, 16);
    const ShardAccumulator sums = accumulated(16, tree_sum.owned(), kCount);
    std::vector<std::vector<float>> values;
    for (const ConstView& partial : sums.partials())
      values.push_back(repeated({static_cast<const float*>(partial.data), kCount}));
    const std::vector<ConstView> partials(values.begin(), values.end());
    tree_sum.all_reduce(values[0], partials);
    EXPECT_TRUE(same_bits(values[0], expected));
  });
}

// In place and apart, at other places on every rank; in the last round one rank's lie elsewhere.
TEST_P(TreeSumOn, SumsWhatLiesInMemoryOfTheGroup) {
  constexpr std::size_t kCount = 10007, kMost = 4;
  const std::vector<float> expected = tree(0, 16, kCount);
  for (const int size : {3, 5, 6})
    run(size, [&](ProcessGroup& group) {
      TreeSum tree_sum(group, 16);
      const Buffer<std::uint8_t> memory =
          group.allocate<std::uint8_t>((kMost * kCount + 100) * sizeof(float));
      float* const begin = reinterpret_cast<float*>(memory.data()) + 7 * group.rank();
      std::vector<float> elsewhere(kMost * kCount), apart(kCount);
      for (int round = 0; round < 3; ++round) {
        const ShardAccumulator sums = accumulated(16, tree_sum.owned(), kCount);
        std::vector<ConstView> partials;
        ASSERT_LE(sums.partials().size(), kMost);
        float* to = round == 2 && group.rank() == 1 ? elsewhere.data() : begin;
        View out = round == 0 ? View(apart) : View(to, kCount, DType::f32);
        for (const ConstView& partial : sums.partials()) {
          std::memcpy(to, partial.data, partial.bytes());
          partials.emplace_back(to, kCount, DType::f32);
          to += kCount;
        }
        tree_sum.all_reduce(out, partials, 1, memory);
        EXPECT_TRUE(same_bits({static_cast<const float*>(out.data), kCount}, expected)) << round;
        for (std::size_t i = round == 0 ? 0 : 1; i < partials.size(); ++i)
          EXPECT_EQ(std::memcmp(partials[i].data, sums.partials()[i].data, partials[i].bytes()), 0);
      }
    });
}

TEST_P(TreeSumOn, ReduceScatterGivesTheSlicesAsked) {
  for (int size = 1; size <= 5; ++size)
    run(size, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      std::vector<std::size_t> counts;  // 0, 1000, 2000, ...
      for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) counts.push_back(r * 1000);
      counts[0] = 7;
      const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      const std::size_t before =
          std::accumulate(counts.begin(), counts.begin() + group.rank(), std::size_t{0});
      std::vector<float> expected = tree(0, 16, all);
      divide(expected, 3);
      TreeSum tree_sum(group, 16);
      const ShardAccumulator sums = accumulated(16, tree_sum.owned(), all);
      std::vector<float> out(counts[rank]);
      tree_sum.reduce_scatter(out, sums.partials(), counts, 3);
      EXPECT_TRUE(same_bits(out, std::span(expected).subspan(before, counts[rank]))) << size;
    });
}

TEST_P(TreeSumOn, ScalarsTakeTheSameTree) {
  std::vector<double> leaves;
  for (int shard = 0; shard < 16; ++shard) {
    leaves.push_back(1.0 / (shard + 3));
    leaves.push_back(shard);
  }
  std::vector<double> expected;
  for (const int size : {1, 3, 4}) {
    std::mutex mutex;
    run(size, [&](ProcessGroup& group) {
      TreeSum tree_sum(group, 16);
      const ShardRange owned = tree_sum.owned();
      std::vector<double> out(2);
      tree_sum.sum(out, std::span(leaves).subspan(2 * static_cast<std::size_t>(owned.first),
                                                  2 * static_cast<std::size_t>(owned.count())));
      const std::lock_guard lock(mutex);
      if (expected.empty()) expected = out;
      EXPECT_EQ(out, expected);
    });
  }
  EXPECT_EQ(expected[1], 120);
  EXPECT_NEAR(expected[0], 1.9951081, 1e-6);
}

TEST_P(TreeSumOn, ArgumentsAreCheckedBeforeAnythingIsSent) {
  run(2, [](ProcessGroup& group) {
    TreeSum tree_sum(group, 4);
    std::vector<float> out(3);
    const std::vector<float> value(3, 1.0f), longer(4, 1.0f);
    const ConstView right(value), wrong(longer);
    EXPECT_THROW(tree_sum.all_reduce(out, {}), InvalidArgument);
    EXPECT_THROW(tree_sum.all_reduce(out, {&wrong, 1}), InvalidArgument);
    const std::vector<std::size_t> counts{1, 1};
    EXPECT_THROW(tree_sum.reduce_scatter(out, {&right, 1}, counts), InvalidArgument);
    std::vector<double> sums(2);
    EXPECT_THROW(tree_sum.sum(sums, std::vector<double>(3)), InvalidArgument);
    tree_sum.all_reduce(out, {&right, 1});
    EXPECT_EQ(out, std::vector<float>(3, 2.0f));
  });
}

C10D_ON_EACH_BACKEND(TreeSumOn);

}}  // namespace c10d::parallel
