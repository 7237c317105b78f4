// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "tests/unit/native_ranks.h"

namespace c10d::inline v0 {
namespace {

constexpr std::size_t kCount = 100003;

// Every rank's share of registered memory, through the store.
void with_heap(int size, const std::function<void(TestRank&)>& body) {
  as_ranks(size, body, make_hash_store(std::chrono::seconds(30)));
}

Allocation allocate(TestRank& self, std::size_t count) {
  return self.team().allocate(count * sizeof(std::int32_t),
                              std::chrono::steady_clock::now() + std::chrono::seconds(30));
}

std::span<std::int32_t> values_in(const Allocation& memory, std::size_t first, std::size_t count) {
  return std::span(static_cast<std::int32_t*>(memory.data) + first, count);
}

std::vector<std::int32_t> sums(int size, std::size_t first = 0) {
  std::vector<std::int32_t> all(kCount);
  for (int rank = 0; rank < size; ++rank)
    for (std::size_t i = 0; i < kCount; ++i) all[i] += element(rank, first + i);
  return all;
}

void fill(std::span<std::int32_t> to, int rank, std::size_t first = 0) {
  std::ranges::copy(contribution<std::int32_t>(rank, to.size(), first), to.begin());
}

class NativeHeap : public testing::TestWithParam<int> {};

TEST_P(NativeHeap, AllReduceInPlaceApartAndAtDifferentOffsets) {
  with_heap(GetParam(), [](TestRank& self) {
    const Allocation memory = allocate(self, 3 * kCount);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data) % 4096, 0u);
    const auto expected = sums(self.size());
    const auto shift = static_cast<std::size_t>(self.rank());
    for (int round = 0; round < 5; ++round) {
      const auto input = values_in(memory, shift, kCount);
      const auto output = values_in(memory, kCount + 2 * shift + 20, kCount);
      fill(input, self.rank());
      self.run(AllReduce{output, input, ReduceOp::sum});
      EXPECT_TRUE(std::ranges::equal(output, expected));
      EXPECT_TRUE(std::ranges::equal(input, contribution<std::int32_t>(self.rank(), kCount)));
      self.run(AllReduce{input, input, ReduceOp::sum});
      EXPECT_TRUE(std::ranges::equal(input, expected));
    }
  });
}

TEST_P(NativeHeap, AnyMixOfMemoryGivesTheSame) {
  with_heap(GetParam(), [](TestRank& self) {
    const Allocation one = allocate(self, 2 * kCount);
    const Allocation two = allocate(self, kCount);
    // Other values each time: what an earlier round left in the staging would be wrong.
    for (unsigned mix = 0; mix < 27; ++mix) {
      std::vector<std::int32_t> plain(kCount);
      const unsigned kind = (mix / (self.rank() == 0 ? 1u : self.rank() == 1 ? 3u : 9u)) % 3;
      const auto data = kind == 0   ? std::span(plain)
                        : kind == 1 ? values_in(one, 10, kCount)
                                    : values_in(two, 0, kCount);
      fill(data, self.rank(), mix);
      self.run(AllReduce{data, data, ReduceOp::sum});
      EXPECT_TRUE(std::ranges::equal(data, sums(self.size(), mix))) << mix;
    }
  });
}

TEST_P(NativeHeap, MemoryMayGoWhenOneRankIsDoneWithIt) {
  with_heap(GetParam(), [](TestRank& self) {
    for (int round = 0; round < 20; ++round) {
      const Allocation memory = allocate(self, kCount);
      const auto data = values_in(memory, 0, kCount);
      fill(data, self.rank());
      self.run(AllReduce{data, data, ReduceOp::sum});
      EXPECT_TRUE(std::ranges::equal(data, sums(self.size())));
    }
  });
}

TEST(NativeHeap, DifferentSizesAreAMismatch) {
  with_heap(2, [](TestRank& self) {
    try {
      allocate(self, self.rank() == 0 ? 1 : 100000);
      EXPECT_EQ(self.rank(), 0);
    } catch (const DistBackendError& error) {
      EXPECT_EQ(self.rank(), 1);
      EXPECT_EQ(error.code(), Code::mismatch);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NativeHeap, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace c10d::inline v0
