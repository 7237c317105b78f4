// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <random>

#include "src/backends/native/team/own_cpu.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 { namespace {

using Values = std::vector<std::int32_t>;

// Inline, one shot, several chunks, slots used again, an odd end.
const std::size_t kCounts[] = {0, 1, 10, 11, 1000, 70001, 300003};

struct World {
  int ranks;
  const char* plan;  // by force; empty: as the cost model says
  friend void PrintTo(const World& world, std::ostream* out) {
    *out << world.ranks << " ranks " << world.plan;
  }
};

class Native : public testing::TestWithParam<World> {
 protected:
  ForcedPlan forced_{GetParam().plan};
};

// Sums that round: equal only if every element went along the same tree, whatever the size.
TEST_P(Native, AllReduceHasTheBitsOfTheTree) {
  for (const std::size_t count : kCounts) {
    const auto inputs = fractions(GetParam().ranks, count);
    for (const ReduceOp op : {ReduceOp(ReduceOp::sum), ReduceOp(ReduceOp::avg),
                              ReduceOp::premul(0.3), ReduceOp(ReduceOp::max)}) {
      const auto expected = along_the_tree(inputs, op);
      as_ranks(GetParam().ranks, [&](TestRank& self) {
        const auto& input = inputs[static_cast<std::size_t>(self.rank())];
        std::vector<float> output(count);
        self.run(AllReduce{output, input, op});
        EXPECT_EQ(output, expected) << count;
        std::vector<float> both = input;
        self.run(AllReduce{both, both, op});
        EXPECT_EQ(both, expected) << count;
      });
    }
  }
}

TEST_P(Native, ReduceGivesTheRootTheBitsOfTheTree) {
  for (const std::size_t count : kCounts) {
    const auto inputs = fractions(GetParam().ranks, count);
    const auto expected = along_the_tree(inputs, ReduceOp::sum);
    as_ranks(GetParam().ranks, [&](TestRank& self) {
      const auto& input = inputs[static_cast<std::size_t>(self.rank())];
      for (const int root : {0, self.size() - 1}) {
        std::vector<float> output(self.rank() == root ? count : 0);
        self.run(Reduce{output, input, ReduceOp::sum, root});
        if (self.rank() == root) {
          EXPECT_EQ(output, expected) << count;
        }
        std::vector<float> both = input;
        self.run(Reduce{self.rank() == root ? View(both) : View(), both, ReduceOp::sum, root});
        EXPECT_EQ(both, self.rank() == root ? expected : input);
      }
    });
  }
}

TEST_P(Native, Broadcast) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    for (const std::size_t count : kCounts)
      for (const int root : {0, self.size() / 2}) {
        const Values expected = contribution<std::int32_t>(root, count);
        Values output = self.rank() == root ? expected : Values(count, -1);
        self.run(Broadcast{output, output, root});
        EXPECT_EQ(output, expected);
        Values apart(count, -1);
        self.run(Broadcast{apart, expected, root});
        EXPECT_EQ(apart, expected);
      }
  });
}

// Block sizes of the v variants: different, one of them zero.
std::vector<std::size_t> uneven(int size, std::size_t count) {
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i)
    counts.push_back(i == 1 ? 0 : count + 3 * i);
  return counts;
}
std::size_t before(const std::vector<std::size_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}
Values gathered(const std::vector<std::size_t>& counts) {
  Values all;
  for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
    const Values block = contribution<std::int32_t>(rank, counts[static_cast<std::size_t>(rank)]);
    all.insert(all.end(), block.begin(), block.end());
  }
  return all;
}

TEST_P(Native, AllGather) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    const auto ranks = static_cast<std::size_t>(self.size());
    for (const std::size_t count : kCounts) {
      const Values expected = gathered(std::vector<std::size_t>(ranks, count));
      const Values input = contribution<std::int32_t>(self.rank(), count);
      Values output(count * ranks, -1);
      self.run(AllGather{output, input});
      EXPECT_EQ(output, expected);
      Values both(count * ranks, -1);
      const View own = View(both).slice(static_cast<std::size_t>(self.rank()) * count, count);
      std::copy(input.begin(), input.end(), both.begin() + self.rank() * static_cast<long>(count));
      self.run(AllGather{both, own});
      EXPECT_EQ(both, expected);
    }
  });
}

TEST_P(Native, AllGatherV) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    for (const std::size_t count : kCounts) {
      const auto counts = uneven(self.size(), count);
      const Values input =
          contribution<std::int32_t>(self.rank(), counts[static_cast<std::size_t>(self.rank())]);
      const Values expected = gathered(counts);
      Values output(expected.size(), -1);
      self.run(AllGatherV{output, input, counts});
      EXPECT_EQ(output, expected);
    }
  });
}

TEST_P(Native, GatherAndGatherV) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    const auto ranks = static_cast<std::size_t>(self.size());
    for (const std::size_t count : kCounts)
      for (const int root : {0, self.size() - 1}) {
        const bool is_root = self.rank() == root;
        const std::vector<std::size_t> even(ranks, count);
        Values output(is_root ? count * ranks : 0, -1);
        const Values mine = contribution<std::int32_t>(self.rank(), count);
        self.run(Gather{output, mine, root});
        EXPECT_EQ(output, is_root ? gathered(even) : Values());
        const auto counts = uneven(self.size(), count);
        Values various(is_root ? gathered(counts).size() : 0, -1);
        const Values part =
            contribution<std::int32_t>(self.rank(), counts[static_cast<std::size_t>(self.rank())]);
        self.run(GatherV{various, part, counts, root});
        EXPECT_EQ(various, is_root ? gathered(counts) : Values());
      }
  });
}

TEST_P(Native, ScatterAndScatterV) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    const auto rank = static_cast<std::size_t>(self.rank());
    const auto ranks = static_cast<std::size_t>(self.size());
    for (const std::size_t count : kCounts)
      for (const int root : {0, self.size() - 1}) {
        const bool is_root = self.rank() == root;
        const Values all = gathered(std::vector<std::size_t>(ranks, count));
        Values output(count, -1);
        self.run(Scatter{output, is_root ? ConstView(all) : ConstView(), root});
        EXPECT_EQ(output, contribution<std::int32_t>(self.rank(), count));
        const auto counts = uneven(self.size(), count);
        const Values various = gathered(counts);
        Values mine = space<std::int32_t>(counts[rank]);
        self.run(ScatterV{mine, is_root ? ConstView(various) : ConstView(), counts, root});
        EXPECT_EQ(mine, contribution<std::int32_t>(self.rank(), counts[rank]));
      }
  });
}

// What each rank gives to a reduce_scatter: element i of `rank`, counted over all blocks.
Values summed(int size, std::size_t first, std::size_t count) {
  Values sums(count);
  for (int rank = 0; rank < size; ++rank)
    for (std::size_t i = 0; i < count; ++i) sums[i] += element(rank, first + i);
  return sums;
}

TEST_P(Native, ReduceScatterAndReduceScatterV) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    const auto rank = static_cast<std::size_t>(self.rank());
    const auto ranks = static_cast<std::size_t>(self.size());
    for (const std::size_t count : kCounts) {
      Values input = contribution<std::int32_t>(self.rank(), count * ranks);
      const Values expected = summed(self.size(), rank * count, count);
      Values output(count, -1);
      self.run(ReduceScatter{output, input, ReduceOp::sum});
      EXPECT_EQ(output, expected);
      const View own = View(input).slice(rank * count, count);
      self.run(ReduceScatter{own, input, ReduceOp::sum});
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                             input.begin() + static_cast<long>(rank * count)));
      const auto counts = uneven(self.size(), count);
      Values mine = space<std::int32_t>(counts[rank]);
      const Values all = contribution<std::int32_t>(self.rank(), before(counts, self.size()));
      self.run(ReduceScatterV{mine, all, counts, ReduceOp::sum});
      EXPECT_EQ(mine, summed(self.size(), before(counts, self.rank()), counts[rank]));
    }
  });
}

TEST_P(Native, AllToAll) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    const auto ranks = static_cast<std::size_t>(self.size());
    for (const std::size_t count : kCounts) {
      const Values input = contribution<std::int32_t>(self.rank(), count * ranks);
      Values output(count * ranks, -1), expected;
      for (int from = 0; from < self.size(); ++from) {
        const Values block =
            contribution<std::int32_t>(from, count, static_cast<std::size_t>(self.rank()) * count);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      self.run(AllToAll{output, input});
      EXPECT_EQ(output, expected);
    }
  });
}

TEST_P(Native, AllToAllV) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    const auto given = [](int from, int to, std::size_t count) {
      return from == 0 && to == 1 ? 0 : count + static_cast<std::size_t>(from * 5 + to);
    };
    for (const std::size_t count : kCounts) {
      std::vector<std::size_t> inputs, outputs;
      Values input, expected;
      for (int peer = 0; peer < self.size(); ++peer) {
        inputs.push_back(given(self.rank(), peer, count));
        outputs.push_back(given(peer, self.rank(), count));
        const Values to = contribution<std::int32_t>(self.rank() + peer, inputs.back());
        const Values from = contribution<std::int32_t>(self.rank() + peer, outputs.back());
        input.insert(input.end(), to.begin(), to.end());
        expected.insert(expected.end(), from.begin(), from.end());
      }
      Values output(expected.size(), -1);
      self.run(AllToAllV{output, input, outputs, inputs});
      EXPECT_EQ(output, expected);
    }
  });
}

TEST_P(Native, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    for (int round = 1; round <= 50; ++round) {
      arrived.fetch_add(1);
      self.run(Barrier{});
      EXPECT_GE(arrived.load(), round * self.size());
    }
  });
}

// Ops in turns would each have a half of the staging to themselves, were it not for barriers.
void shift_parity(TestRank& self, bool now) {
  if (now) self.run(Barrier{});
}

// Small and large ops in turns: staging halves and inline lines are used again and again, by one
// algorithm after another.
TEST_P(Native, OpsInTurnsKeepTheirData) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    for (int round = 0; round < 30; ++round) {
      const std::size_t count = kCounts[static_cast<std::size_t>(round) % std::size(kCounts)];
      shift_parity(self, round % 3 == 1);
      Values values =
          contribution<std::int32_t>(self.rank(), count, static_cast<std::size_t>(round));
      const Work sum = self.start(AllReduce{values, values, ReduceOp::sum}, round % 3 == 0);
      shift_parity(self, round % 2 == 0);
      Values root = contribution<std::int32_t>(round, count);
      if (self.rank() != round % self.size()) root.assign(count, -1);
      self.run(Broadcast{root, root, round % self.size()});
      sum.wait();
      EXPECT_EQ(values, summed(self.size(), static_cast<std::size_t>(round), count));
      EXPECT_EQ(root, contribution<std::int32_t>(round, count));
    }
  });
}

// What goes one way begins elsewhere in the staging from op to op, next to what is larger or
// smaller.
TEST_P(Native, OneWayInTurnsKeepsItsData) {
  as_ranks(GetParam().ranks, [&](TestRank& self) {
    for (std::size_t round = 0; round < 40; ++round) {
      const std::size_t count = 3000 * (1 + round % 13);
      const int root = static_cast<int>(round) % self.size();
      const Values values = contribution<std::int32_t>(self.rank(), count, round);
      shift_parity(self, round % 3 == 1);
      Values sum(count, -1);
      self.run(Reduce{sum, values, ReduceOp::sum, root});
      EXPECT_EQ(sum, self.rank() == root ? summed(self.size(), round, count) : Values(count, -1));
      shift_parity(self, round % 2 == 0);
      Values sent = contribution<std::int32_t>(root, count, round);
      if (self.rank() != root) sent.assign(count, -1);
      self.run(Broadcast{sent, sent, root});
      EXPECT_EQ(sent, contribution<std::int32_t>(root, count, round));
    }
  });
}

// What is staged early, in one slot for several ranks, or where the last op ended, is in nobody's
// way.
TEST_P(Native, AnyOpMayFollowAnyOther) {
  as_ranks(GetParam().ranks, [](TestRank& self) {
    const auto ranks = static_cast<std::size_t>(self.size());
    std::minstd_rand random(1);  // the same on every rank
    for (std::size_t step = 0; step < 40; ++step) {
      const std::size_t count = std::array<std::size_t, 5>{1, 30, 100, 5000, 40001}[random() % 5];
      const auto kind = random() % 3;
      if (kind == 0) {
        Values sum = contribution<std::int32_t>(self.rank(), count, step);
        self.run(AllReduce{sum, sum, ReduceOp::sum});
        EXPECT_EQ(sum, summed(self.size(), step, count));
      } else if (kind == 1) {
        const Values own = contribution<std::int32_t>(self.rank(), count * ranks, step);
        Values mine(count, -1);
        self.run(ReduceScatter{mine, own, ReduceOp::sum});
        const auto first = static_cast<std::size_t>(self.rank()) * count;
        EXPECT_EQ(mine, summed(self.size(), step + first, count));
      } else {
        // Rank 0 gives little, whatever the others do.
        const auto given = [&](std::size_t rank) { return rank == 0 ? 3 : count; };
        std::vector<std::size_t> from(ranks),
            to(ranks, given(static_cast<std::size_t>(self.rank())));
        for (std::size_t rank = 0; rank < ranks; ++rank) from[rank] = given(rank);
        Values input, expected;
        for (int peer = 0; peer < self.size(); ++peer) {
          const Values out = contribution<std::int32_t>(2 * self.rank() + peer, to[0], step);
          input.insert(input.end(), out.begin(), out.end());
          const std::size_t taken = from[static_cast<std::size_t>(peer)];
          const Values in = contribution<std::int32_t>(2 * peer + self.rank(), taken, step);
          expected.insert(expected.end(), in.begin(), in.end());
        }
        Values output(expected.size(), -1);
        self.run(AllToAllV{output, input, from, to});
        EXPECT_EQ(output, expected);
      }
    }
  });
}

TEST_P(Native, GoesOnWhenTheEpochWraps) {
  as_ranks(GetParam().ranks, [](TestRank& self) {
    for (std::uint32_t epoch = native::kFirstEpoch; epoch != 20; ++epoch) {
      if (epoch < 0u - 10u && epoch > 20u) {
        self.run(Barrier{});
        continue;
      }
      Values values = contribution<std::int32_t>(self.rank(), 300000);
      self.run(AllReduce{values, values, ReduceOp::sum});
      EXPECT_EQ(values, summed(self.size(), 0, values.size()));
    }
  });
}

// Where ranks share CPUs, who collects from whose slot follows from where they run.
TEST(NativeCrowded, AnyPlacementGivesTheBitsOfTheTree) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  const ForcedPlan forced("two_shot/mixed/32768");
  const native::OwnCpu one_for_all(0);
  constexpr std::size_t kCount = 100003;
  for (const std::string placement : {"0011", "0110", "0001", "01011", "00110011"}) {
    const int ranks = static_cast<int>(placement.size());
    const auto inputs = fractions(ranks, kCount);
    const auto expected = along_the_tree(inputs, ReduceOp::sum);
    as_ranks(ranks, [&](TestRank& self) {
      EXPECT_TRUE(self.team().oversubscribed());
      const auto rank = static_cast<std::size_t>(self.rank());
      const auto place = static_cast<std::size_t>(placement[rank] - '0');
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(static_cast<std::size_t>(cpus[place % cpus.size()]), &own);
      EXPECT_EQ(sched_setaffinity(0, sizeof own, &own), 0);
      for (int again = 0; again < 3; ++again) {
        std::vector<float> both = inputs[rank];
        self.run(AllReduce{both, both, ReduceOp::sum});
        EXPECT_EQ(both, expected) << placement;
      }
    });
  }
}

// Rank 1 sleeps on the CPU of rank 0 until that comes, and may use another CPU from then on. It
// ends on another one: the kernel has woken it there, or it has moved.
class NativeAwoken : public testing::TestWithParam<bool> {};

TEST_P(NativeAwoken, ARankLeavesTheCpuOfThePeer) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "one CPU";
  cpu_set_t first;
  CPU_ZERO(&first);
  for (std::size_t cpu = 0; CPU_COUNT(&first) == 0; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &first);
  const bool messages = GetParam();
  std::atomic<pid_t> sleeper{0};
  as_ranks(2, [&](TestRank& self) {
    EXPECT_FALSE(self.team().oversubscribed());
    EXPECT_EQ(sched_setaffinity(0, sizeof first, &first), 0);
    Values values(4, 1), sums(4);
    if (self.rank() == 1) {
      sleeper.store(gettid());
      self.run(messages ? Op(Recv{sums, 0, 0}) : Op(AllReduce{sums, values, ReduceOp::sum}));
      EXPECT_EQ(sums[0], messages ? 1 : 2);
      EXPECT_NE(self.team().lines(1).last_cpu.load(), self.team().lines(0).last_cpu.load());
      return;
    }
    native::RankLines& bell = self.team().lines(messages ? 1 : 0);
    const Doorbell& doorbell = messages ? bell.mailbox : bell.doorbell;
    while (sleeper.load() == 0 || doorbell.sleepers.load() == 0) std::this_thread::yield();
    EXPECT_EQ(sched_setaffinity(sleeper.load(), sizeof allowed, &allowed), 0);
    self.run(messages ? Op(Send{values, 1, 0}) : Op(AllReduce{sums, values, ReduceOp::sum}));
  });
}

INSTANTIATE_TEST_SUITE_P(Waits, NativeAwoken, testing::Bool(), [](const auto& wait) {
  return wait.param ? std::string("in_a_recv") : std::string("in_a_collective");
});

constexpr World kWorlds[] = {{1, ""},
                             {2, ""},
                             {3, ""},
                             {4, ""},
                             {7, ""},
                             {2, "one_shot/temporal/32768"},
                             {2, "one_shot/mixed/32768"},
                             {2, "one_shot/streaming/32768"},
                             {2, "two_shot/mixed/32768"},
                             {5, "two_shot/temporal/32768"},
                             {3, "two_shot/streaming/32768"},
                             {2, "pull/streaming"}};

std::string world_name(const testing::TestParamInfo<World>& world) {
  std::string name = std::to_string(world.param.ranks) + "_" + world.param.plan;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Worlds, Native, testing::ValuesIn(kWorlds), world_name);

}}}  // namespace c10d::v0
