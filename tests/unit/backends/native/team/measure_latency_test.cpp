// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>

#include "src/backends/native/team/own_cpu.h"
#include "src/base/host.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 { namespace {

using native::RoundTrips;

// Every rank gets the same, or nothing where there is not a CPU for each.
TEST(RoundTrips, AreTheSameOnEveryRank) {
  for (const int size : {1, 2, 3}) {
    std::vector<RoundTrips> seen(static_cast<std::size_t>(size));
    as_ranks(size, [&](TestRank& self) {
      seen[static_cast<std::size_t>(self.rank())] = self.team().round_trips();
      std::vector<std::int32_t> one(1, 1);
      self.run(AllReduce{one, one, ReduceOp::sum});
      EXPECT_EQ(one[0], size);
    });
    for (const RoundTrips& trips : seen) EXPECT_EQ(trips.ns, seen[0].ns);
    if (size == 1 || size > allowed_cpus()) {
      EXPECT_TRUE(seen[0].ns.empty());
      EXPECT_EQ(describe(seen[0], 0.3), "");
      continue;
    }
    for (int a = 0; a < size; ++a)
      for (int b = 0; b < size; ++b) {
        EXPECT_EQ(seen[0].between(a, b) == 0, a == b);
        EXPECT_EQ(seen[0].between(a, b), seen[0].between(b, a));
      }
  }
}

TEST(RoundTrips, MakeGroupsOfRanksThatAreNear) {
  EXPECT_EQ(native::near_groups({}, 3), (std::vector<int>{0, 0, 0}));
  // Ranks 0, 2 and 1, 3 are near, whatever the machine claims.
  const RoundTrips pairs{4,
                         {0, 400, 100, 390,  //
                          400, 0, 410, 110,  //
                          100, 410, 0, 380,  //
                          390, 110, 380, 0}};
  EXPECT_EQ(native::near_groups(pairs, 4), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(describe(pairs, 0.3), "rtt 0.10-0.41 us, 2 groups");
  const RoundTrips even{2, {0, 330, 330, 0}};
  EXPECT_EQ(native::near_groups(even, 2), (std::vector<int>{0, 0}));
  EXPECT_EQ(describe(even, 0.3), "rtt 0.33 us");
}

// Of ranks that shared a CPU while they measured.
TEST(RoundTrips, AreNotShownWhereTheyAreNotBelieved) {
  EXPECT_EQ(describe(RoundTrips{2, {0, 27690, 27690, 0}}, 0.3), "rtt 0.30 us, assumed");
  const RoundTrips mixed{3, {0, 120, 27690, 120, 0, 110, 27690, 110, 0}};
  EXPECT_EQ(describe(mixed, 0.3), "rtt 0.11-0.12 us");
}

// All ranks together take in proportion to their number; with many, every pair still has a ring.
TEST(Layout, TakesLittleMemoryThatGrowsLinearly) {
  const auto per_rank = [](int ranks) {
    return native::Layout(ranks).bytes() / static_cast<std::size_t>(ranks);
  };
  for (int ranks = 2; ranks <= 8; ++ranks) EXPECT_LE(per_rank(ranks), std::size_t{8} << 20);
  for (int ranks = 2; ranks <= 64; ++ranks) EXPECT_LE(per_rank(ranks), per_rank(2) * 11 / 10);
  for (int ranks = 64; ranks <= 512; ranks *= 2)
    EXPECT_LE(per_rank(2 * ranks), 2 * per_rank(ranks));
}

cpu_set_t cpus_of_this_thread() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  EXPECT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  return cpus;
}

TEST(OwnCpu, KeepsRanksApartAndGivesTheOtherCpusBack) {
  const cpu_set_t before = cpus_of_this_thread();
  const int count = CPU_COUNT(&before);
  cpu_set_t together;
  CPU_ZERO(&together);
  for (int place = 0; place < 2 * count; ++place) {
    {
      const native::OwnCpu own(place);
      const cpu_set_t now = cpus_of_this_thread();
      EXPECT_EQ(CPU_COUNT(&now), 1);
      CPU_OR(&together, &together, &now);
    }
    const cpu_set_t after = cpus_of_this_thread();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }
  EXPECT_TRUE(CPU_EQUAL(&before, &together));
}

TEST(OwnCpu, ARankLeavesTheCpuOfAnother) {
  const cpu_set_t allowed = cpus_of_this_thread();
  int moves = 0;
  cpu_set_t none, here;
  CPU_ZERO(&none);
  EXPECT_FALSE(native::leave_taken_cpu(none)) << "nobody else is there";
  EXPECT_FALSE(native::leave_taken_cpu(allowed)) << "there is no other";
  for (int place = 0; place < CPU_COUNT(&allowed); ++place) {
    {
      const native::OwnCpu own(place);
      here = cpus_of_this_thread();
      EXPECT_FALSE(native::leave_taken_cpu(here)) << "it may use this one only";
    }
    // The kernel may have moved the thread since: then it has not come from there.
    if (const auto cpu = native::leave_taken_cpu(here)) {
      ++moves;
      EXPECT_FALSE(CPU_ISSET(*cpu, &here));
      EXPECT_TRUE(CPU_ISSET(*cpu, &allowed));
    }
    const cpu_set_t after = cpus_of_this_thread();
    EXPECT_TRUE(CPU_EQUAL(&allowed, &after));
  }
  EXPECT_EQ(moves > 0, CPU_COUNT(&allowed) > 1);
}

}}}  // namespace c10d::v0
