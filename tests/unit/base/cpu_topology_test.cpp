// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/cpu_topology.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "c10d/error.h"
#include "src/base/host.h"

namespace c10d { inline namespace v0 { namespace {

TEST(Topology, KnowsTheAllowedCpusOfThisMachine) {
  const auto places = cpu_places();
  EXPECT_EQ(static_cast<int>(places.size()), allowed_cpus());
  std::set<int> cpus;
  for (const CpuPlace& place : places) cpus.insert(place.cpu);
  EXPECT_EQ(cpus.size(), places.size());
  EXPECT_GE(count_places(places, &CpuPlace::numa_node), 1);
}

TEST(Topology, TellsNodesPackagesAndCachesApart) {
  const auto places = cpu_places("package:2 numa:2 l3:2 core:2 pu:1");
  ASSERT_EQ(places.size(), 16u);
  EXPECT_EQ(count_places(places, &CpuPlace::package), 2);
  EXPECT_EQ(count_places(places, &CpuPlace::numa_node), 4);
  EXPECT_EQ(count_places(places, &CpuPlace::l3), 8);
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i].cpu, static_cast<int>(i));
    EXPECT_EQ(places[i].l3, static_cast<int>(i / 2));
    EXPECT_EQ(places[i].numa_node, static_cast<int>(i / 4));
    EXPECT_EQ(places[i].package, static_cast<int>(i / 8));
  }
}

using Sets = std::vector<std::vector<int>>;

Sets bound(const char* machine, CpuBinding binding, int ranks, bool overload = false) {
  return bind_cpus(cpu_places(machine), binding, ranks, overload);
}

TEST(Binding, SharesAreNeighboursInWholeCores) {
  EXPECT_EQ(bound("core:4 pu:2", CpuBinding::share, 2), (Sets{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(bound("core:4 pu:2", CpuBinding::share, 3), (Sets{{0, 1}, {2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(bound("core:2 pu:2", CpuBinding::share, 3), (Sets{{0}, {1}, {2, 3}}))
      << "fewer cores than ranks";
  EXPECT_EQ(bound("core:2 pu:1", CpuBinding::share, 4, true), (Sets{{0}, {0}, {1}, {1}}));
  EXPECT_EQ(bound("core:2 pu:1", CpuBinding::none, 2), Sets());
}

TEST(Binding, ACoreIsOneOfTheShare) {
  EXPECT_EQ(bound("core:4 pu:2", CpuBinding::core, 2), (Sets{{0, 1}, {4, 5}}));
  EXPECT_EQ(bound("core:2 pu:2", CpuBinding::core, 3, true), (Sets{{0, 1}, {0, 1}, {2, 3}}));
}

TEST(Binding, PlacesGoRound) {
  constexpr const char* kMachine = "package:2 numa:2 l3:2 core:1 pu:1";  // CPUs 0 to 7
  EXPECT_EQ(bound(kMachine, CpuBinding::numa, 5), (Sets{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 1}}));
  EXPECT_EQ(bound(kMachine, CpuBinding::socket, 3),
            (Sets{{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}}));
  EXPECT_EQ(bound(kMachine, CpuBinding::l3, 2), (Sets{{0}, {1}}));
  EXPECT_EQ(bound("core:2 pu:1", CpuBinding::l3, 2), (Sets{{0, 1}, {0, 1}})) << "none is known";
}

TEST(Binding, TooFewAreAnError) {
  EXPECT_THROW(bound("core:2 pu:2", CpuBinding::core, 3), InvalidArgument);
  EXPECT_THROW(bound("core:2 pu:1", CpuBinding::share, 3), InvalidArgument);
  EXPECT_THROW(bound("no machine", CpuBinding::numa, 1), InvalidArgument);
}

// As a user of hwloc would make a machine up for a program.
TEST(Topology, FollowsTheSyntheticMachineOfTheEnvironment) {
  ::setenv("HWLOC_SYNTHETIC", "package:2 numa:1 l3:1 pu:3", 1);
  const auto places = cpu_places();
  ::unsetenv("HWLOC_SYNTHETIC");
  ASSERT_EQ(places.size(), 6u);
  EXPECT_EQ(count_places(places, &CpuPlace::numa_node), 2);
  for (std::size_t i = 0; i < places.size(); ++i)
    EXPECT_EQ(places[i].numa_node, static_cast<int>(i / 3));
  EXPECT_EQ(static_cast<int>(cpu_places().size()), allowed_cpus());
}

TEST(Topology, SaysWhatIsNotKnown) {
  const auto places = cpu_places("numa:2 pu:1");
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[1].l3, -1);
  EXPECT_EQ(count_places(places, &CpuPlace::l3), 1);
  EXPECT_EQ(count_places(places, &CpuPlace::numa_node), 2);
  EXPECT_TRUE(cpu_places("no machine").empty());
}

}}}  // namespace c10d::v0
