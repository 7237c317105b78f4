// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>

#include <algorithm>
#include <latch>

#include "src/backends/native/collectives/direct_access.h"
#include "tests/unit/backends/native/ranks.h"
#include "tests/unit/sync/shared_pages.h"

namespace c10d { inline namespace v0 { namespace {

constexpr std::size_t kCount = 100003;
constexpr std::size_t kRankBlock = 20011;  // of the ops that have one per rank

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

// What rank `from` gives to rank `to`.
std::int32_t given(int from, int to, std::size_t i) { return element(from * 31 + to, i); }

class NativeHeapOps : public testing::TestWithParam<const char*> {
 protected:
  ForcedPlan forced_{GetParam()};
};

// Every op with all memory registered; whatever goes through the heap leaves the staging as it was.
TEST_P(NativeHeapOps, EveryOpOnRegisteredMemory) {
  with_heap(3, [](TestRank& self) {
    const auto ranks = static_cast<std::size_t>(self.size());
    const int me = self.rank();
    const Allocation memory = allocate(self, 2 * ranks * kRankBlock);
    const auto input = values_in(memory, 0, ranks * kRankBlock);
    const auto output = values_in(memory, ranks * kRankBlock, ranks * kRankBlock);
    const auto in_block = input.first(kRankBlock), out_block = output.first(kRankBlock);
    for (int to = 0; to < self.size(); ++to)
      for (std::size_t i = 0; i < kRankBlock; ++i)
        input[static_cast<std::size_t>(to) * kRankBlock + i] = given(me, to, i);
    // Checks block `at` of the output, then makes sure that the next op has to write it.
    const auto expect = [&](std::size_t at, const char* op, auto value) {
      for (std::size_t i = 0; i < kRankBlock; ++i)
        ASSERT_EQ(output[at * kRankBlock + i], value(i))
            << op << " rank " << me << " element " << i;
      std::ranges::fill(output.subspan(at * kRankBlock, kRankBlock), -1000);
    };
    const auto total = [&](int to) {
      return [&self, to](std::size_t i) {
        std::int32_t sum = 0;
        for (int from = 0; from < self.size(); ++from) sum += given(from, to, i);
        return sum;
      };
    };
    for (const int root : {0, 2}) {
      const View rooted = me == root ? View(output) : View();
      self.run(Broadcast{out_block, in_block, root});
      expect(0, "broadcast", [&](std::size_t i) { return given(root, 0, i); });
      self.run(Reduce{me == root ? View(out_block) : View(), in_block, ReduceOp::sum, root});
      if (me == root) expect(0, "reduce", total(0));
      self.run(Gather{rooted, in_block, root});
      for (std::size_t from = 0; from < ranks && me == root; ++from)
        expect(from, "gather", [&](std::size_t i) { return given(static_cast<int>(from), 0, i); });
      self.run(Scatter{out_block, me == root ? ConstView(input) : ConstView(), root});
      expect(0, "scatter", [&](std::size_t i) { return given(root, me, i); });
    }
    self.run(AllGather{output, in_block});
    for (std::size_t from = 0; from < ranks; ++from)
      expect(from, "all_gather",
             [&](std::size_t i) { return given(static_cast<int>(from), 0, i); });
    self.run(ReduceScatter{out_block, input, ReduceOp::sum});
    expect(0, "reduce_scatter", total(me));
    self.run(AllReduce{out_block, in_block, ReduceOp::sum});
    expect(0, "all_reduce", total(0));
    const std::vector<std::size_t> even(ranks, kRankBlock);
    for (const bool v : {false, true}) {
      if (v)
        self.run(AllToAllV{output, input, even, even});
      else
        self.run(AllToAll{output, input});
      for (std::size_t from = 0; from < ranks; ++from)
        expect(from, "all_to_all",
               [&](std::size_t i) { return given(static_cast<int>(from), me, i); });
    }
    if (std::string(GetParam()) != "pull,push") return;
    for (const unsigned parity : {0u, 1u}) {
      const std::byte* const staging = self.team().layout().staging(self.team().base(), me, parity);
      EXPECT_TRUE(std::all_of(staging, staging + self.team().layout().half_bytes(),
                              [](std::byte byte) { return byte == std::byte{0}; }));
    }
  });
}

// "pull,push": pull where it applies, then push where that does, so that nothing is staged.
INSTANTIATE_TEST_SUITE_P(Plans, NativeHeapOps,
                         testing::Values("", "push,pull", "pull,push", "push/streaming",
                                         "pull/streaming", "one_shot", "two_shot"),
                         [](const auto& plan) {
                           std::string name = std::string("plan_") + plan.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '/' || c == ','; }, '_');
                           return name;
                         });

// A peer's memory that cannot be read is an error on every rank, and the output is nobody's guess.
constexpr std::size_t kHeapBytes = 1 << 20;

// More than two ranks: with two every order of additions is the same.
TEST(NativeMemory, BitsFollowTheTreeWhateverTheAlgorithmAndWhereverItLies) {
  constexpr int kRanks = 5;
  constexpr std::size_t kShare = 4001, kAll = kRanks * kShare;
  const auto inputs = fractions(kRanks, kAll);
  const auto expected = along_the_tree(inputs, ReduceOp::sum);
  for (const char* plan : {"one_shot", "two_shot", "pull", "push"}) {
    const ForcedPlan forced(plan);
    with_heap(kRanks, [&](TestRank& self) {
      const auto me = static_cast<std::size_t>(self.rank());
      const Allocation memory = allocate(self, 2 * kAll);
      std::vector<float> plain(2 * kAll);
      for (float* const at : {plain.data(), static_cast<float*>(memory.data)}) {
        const std::span input(at, kAll), output(at + kAll, kAll);
        std::ranges::copy(inputs[me], input.begin());
        self.run(AllReduce{output, input, ReduceOp::sum});
        EXPECT_TRUE(std::ranges::equal(output, expected)) << plan;
        std::ranges::fill(output, -1.0f);
        self.run(Reduce{me == 3 ? View(output) : View(), input, ReduceOp::sum, 3});
        EXPECT_EQ(std::ranges::equal(output, expected), me == 3) << plan;
        self.run(ReduceScatter{output.first(kShare), input, ReduceOp::sum});
        EXPECT_TRUE(std::equal(output.begin(), output.begin() + kShare,
                               expected.begin() + static_cast<long>(me * kShare)))
            << plan;
      }
    });
  }
}

TEST(NativeMemory, WhatCannotBeReadIsANamedError) {
  const ForcedPlan forced("pull/temporal");
  as_ranks(3, [](TestRank& self) {
    if (!self.team().cost_model().host().cma) GTEST_SKIP() << "this kernel lets no process read";
    void* const forbidden =
        ::mmap(nullptr, kHeapBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::vector<std::uint8_t> mine(kHeapBytes);
    const View buffer = self.rank() == 0 ? View(forbidden, kHeapBytes, DType::u8) : View(mine);
    const Work work = self.start(Broadcast{buffer, buffer, 0}, false);
    ASSERT_NE(work.failure(), nullptr);
    EXPECT_EQ(work.failure()->code, Code::link_lost);
    EXPECT_NE(work.failure()->message.find("cannot read the memory of rank 0"), std::string::npos)
        << work.failure()->message;
    ::munmap(forbidden, kHeapBytes);
  });
}

// A rank that comes first takes the pages of its own part and no others.
TEST(NativeHeap, ARankClaimsItsPartAndNoOther) {
  const native::Layout layout(2);
  const auto segment = make_shared_memory("test", layout.bytes());
  std::byte* const base = segment->data();
  std::byte* const parts = layout.staging(base, 0, 0);
  add_missing_pages(*segment, base, static_cast<std::size_t>(parts - base));
  const std::size_t others = count_pages(*segment);
  const auto add_missing = [&](int rank) {
    return add_missing_pages(*segment, layout.staging(base, rank, 0), layout.staging_bytes()) +
           add_missing_pages(*segment, layout.ring(base, rank, 0), layout.rings_bytes());
  };
  const std::size_t part = (layout.staging_bytes() + layout.rings_bytes()) / page_bytes();
  const auto fate = std::make_shared<GroupFate>();
  std::jthread last([&] { TestRank self(1, 2, fate, segment); });
  while (layout.lines(base, 1).joined.load() == 0) std::this_thread::yield();
  EXPECT_EQ(count_pages(*segment), others + part);
  EXPECT_EQ(add_missing(1), 0u);
  EXPECT_EQ(add_missing(0), part);
  const TestRank first(0, 2, fate, segment);
}

TEST(NativeHeap, AllocatedMemoryHasItsPagesAtOnce) {
  with_heap(3, [](TestRank& self) {
    const Allocation memory = allocate(self, kCount);
    self.run(Barrier{});
    const auto& mapping = *static_cast<const SharedMapping*>(memory.owner.get());
    EXPECT_EQ(add_missing_pages(mapping, static_cast<std::byte*>(memory.data), memory.bytes), 0u);
  });
}

// Rank 0 is in the middle of a block when rank 1 gives up: rank 1 has its memory to itself again
// when it returns.
TEST(NativeHeap, NobodyWritesIntoTheMemoryOfWhoeverGaveUp) {
  const ForcedPlan forced("push/temporal");
  for (int turn = 0; turn < 5; ++turn) {
    std::latch inside(2);
    with_heap(2, [&](TestRank& self) {
      const Allocation memory = allocate(self, 2 * kCount);
      const auto values = values_in(memory, 0, 2 * kCount);
      const View output(values);
      const Call call{.op = AllReduce{output, output, ReduceOp::sum},
                      .sequence = 1,
                      .signature = 1,
                      .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60),
                      .async = false,
                      .record = 0};
      native::Collective collective(self.team(), call);
      const native::AlgorithmChoice* const choice =
          collective.choose(OpKind::all_reduce, DType::i32, output.bytes(),
                            {output.data, output.bytes(), output.data, output.bytes()});
      inside.arrive_and_wait();
      ASSERT_NE(choice, nullptr);
      EXPECT_EQ(choice->algorithm, native::Algorithm::push);
      if (self.rank() == 1) {
        self.control().fail({.code = Code::revoked, .message = "enough"});
        const auto start = std::chrono::steady_clock::now();
        EXPECT_FALSE(collective.finish(false));
        if (std::chrono::steady_clock::now() - start >= native::Collective::kGrace) return;
        EXPECT_EQ(std::ranges::count(values, 7), std::ssize(values));
      } else {
        const auto& theirs = self.team().lines(1).progress.consumed;
        while (!theirs.passed(native::kFirstEpoch + 1, 1)) std::this_thread::yield();
        auto* const there = reinterpret_cast<std::int32_t*>(
            native::DirectAccess(collective).mapped(1, native::Side::output));
        for (std::size_t i = 0; i < values.size(); ++i) there[i] = 7;
        EXPECT_FALSE(collective.check_group());
        EXPECT_FALSE(collective.finish(false));
      }
    });
  }
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

}}}  // namespace c10d::v0
