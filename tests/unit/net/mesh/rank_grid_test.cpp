// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/mesh/rank_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace c10d { namespace {

enum class Placed { in_order, round_robin };

std::vector<std::string> hosts_of(int hosts, int places, Placed placed) {
  std::vector<std::string> names;
  for (int rank = 0; rank < hosts * places; ++rank)
    names.push_back(std::to_string(placed == Placed::in_order ? rank / places : rank % hosts));
  return names;
}

int steps_among(int count) { return std::bit_width(static_cast<unsigned>(count - 1)); }

// Runs the steps: after each, a rank knows what it knew and what the one behind it did.
void check(const RankGrid& grid) {
  const int size = grid.size();
  std::vector<std::set<int>> known;
  for (int rank = 0; rank < size; ++rank) known.push_back({rank});
  for (const RankGrid::Step& step : grid.steps()) {
    const auto before = known;
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(std::ssize(known[static_cast<std::size_t>(rank)]), step.heard());
      const int behind = grid.behind(rank, step);
      EXPECT_EQ(grid.ahead(behind, step), rank);
      known[static_cast<std::size_t>(rank)].merge(
          std::set<int>(before[static_cast<std::size_t>(behind)]));
      EXPECT_EQ(std::ssize(known[static_cast<std::size_t>(rank)]), step.heard() + step.told());
      for (const int other : known[static_cast<std::size_t>(rank)])
        EXPECT_LT(grid.order(rank, other), step.heard() + step.told());
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(std::ssize(known[static_cast<std::size_t>(rank)]), size);
    for (int order = 0; order < size; ++order)
      EXPECT_EQ(grid.order(rank, grid.rank_at(rank, order)), order);
    const std::vector<int> near = grid.neighbours_of(rank);
    EXPECT_LE(std::ssize(near),
              std::max<std::ptrdiff_t>(RankGrid::kFew - 1, 2 * std::ssize(grid.steps())));
    EXPECT_TRUE(std::ranges::is_sorted(near));
    for (const int other : near) {
      EXPECT_NE(other, rank);
      const std::vector<int> theirs = grid.neighbours_of(other);
      EXPECT_TRUE(std::ranges::find(theirs, rank) != theirs.end()) << rank << " " << other;
    }
  }
}

TEST(RankGrid, WordReachesAllRanksInFewSteps) {
  for (int hosts = 1; hosts <= 9; ++hosts)
    for (int places = 1; places <= 9; ++places)
      for (const Placed placed : {Placed::in_order, Placed::round_robin}) {
        const RankGrid grid(hosts_of(hosts, places, placed));
        EXPECT_EQ(std::ssize(grid.steps()), steps_among(places) + steps_among(hosts));
        check(grid);
      }
}

TEST(RankGrid, HostsOfDifferentSizesCountAsOne) {
  for (int size = 3; size <= 40; ++size) {
    std::vector<std::string> hosts(static_cast<std::size_t>(size), "large");
    hosts[static_cast<std::size_t>(size) / 2] = "small";
    const RankGrid grid(hosts);
    EXPECT_EQ(std::ssize(grid.steps()), steps_among(size));
    check(grid);
  }
}

// What passes between hosts: steps whose two ranks are on different ones.
TEST(RankGrid, OnlyTheLastStepsLeaveTheHost) {
  constexpr int kHosts = 1024, kPlaces = 8;
  const RankGrid grid(hosts_of(kHosts, kPlaces, Placed::in_order));
  const auto leaving = std::ranges::count_if(grid.steps(), [&](const RankGrid::Step& step) {
    return grid.ahead(17, step) / kPlaces != 17 / kPlaces;
  });
  EXPECT_EQ(leaving, 10);
}

}}  // namespace c10d
