// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/placement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "src/backends/native/hosts/partial_sums.h"

namespace c10d { namespace {

using native::PartialSums;
using native::Placement;

// A letter for the host of each rank.
Placement placed(const std::string& hosts, int rank = 0) {
  std::vector<std::string> names;
  for (const char host : hosts) names.emplace_back(1, host);
  return {rank, names};
}

TEST(Placement, KnowsHostsAndPlaces) {
  const Placement placement = placed("babbc", 3);
  EXPECT_EQ(placement.hosts(), 3);
  EXPECT_EQ(placement.lanes(), 1);
  EXPECT_EQ(placement.host(), 0);
  EXPECT_EQ(placement.place(), 2);
  EXPECT_FALSE(placement.is_lane());
  EXPECT_EQ(placement.ranks_of(0), (std::vector{0, 2, 3}));
  EXPECT_EQ(placement.ranks_of(1), std::vector{1});
  EXPECT_FALSE(placement.in_order());
  EXPECT_TRUE(placed("aabbb").in_order());
  EXPECT_EQ(placed("aabbb", 1).twin(1), 3);
}

TEST(Placement, LanesCarryAllOfIt) {
  for (const std::string hosts : {"ab", "aabb", "aaabbbb", "abababab"})
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{1} << 20}) {
      const Placement placement = placed(hosts);
      std::size_t next = 0;
      for (int place = 0; place < placement.ranks_on(0); ++place) {
        const native::Range part = placement.carried_by(place, count, 4);
        if (part.count == 0) continue;
        EXPECT_EQ(part.first, next);
        EXPECT_LT(place, placement.lanes());
        next += part.count;
      }
      EXPECT_EQ(next, count);
    }
}

// "2 2 | 4": so many ranks behind each value, host after host.
std::string values_of(const std::string& hosts) {
  const PartialSums sums(placed(hosts));
  const PartialSums::Values& values = sums.ordered();
  std::string text;
  for (int host = 0; host < placed(hosts).hosts(); ++host) {
    if (host > 0) text += " |";
    for (const std::size_t value : values.of(host))
      text += (text.empty() ? "" : " ") + std::to_string(values.ranks[value]);
  }
  EXPECT_EQ(std::accumulate(values.ranks.begin(), values.ranks.end(), std::size_t{0}),
            hosts.size());
  return text;
}

// The counts of hosts.md and of adr/0020: one value where a host has 2^k neighbouring ranks.
TEST(PartialSums, AreTheLargestPartsOfTheTreeInAHost) {
  EXPECT_EQ(values_of("ab"), "1 | 1");
  EXPECT_EQ(values_of("aabb"), "2 | 2");
  EXPECT_EQ(values_of("aaaabbbbcccc"), "4 | 4 | 4");
  EXPECT_EQ(values_of("aaabbb"), "2 1 | 1 2");
  EXPECT_EQ(values_of("abbb"), "1 | 1 2");
  EXPECT_EQ(values_of("aabbbc"), "2 | 2 1 | 1");
  EXPECT_EQ(values_of("abab"), "1 1 | 1 1");
  EXPECT_EQ(values_of("aaaaabbbbb"), "4 1 | 1 2 2");
}

TEST(PartialSums, TravelAsInputsWhereEachIsOfOneRank) {
  EXPECT_TRUE(PartialSums(placed("ab")).ordered().inputs);
  EXPECT_TRUE(PartialSums(placed("abab")).ordered().inputs);
  EXPECT_FALSE(PartialSums(placed("aab")).ordered().inputs);
}

// Only then is the sum of what hosts at distance 1, 2, 4, ... have a part of the tree.
TEST(PartialSums, AreHalvedWhereHostsMakeUpTheTree) {
  const auto halves = [](const std::string& hosts, ReduceOp::Kind kind) {
    return PartialSums(placed(hosts)).values(DType::f32, kind).halves;
  };
  for (const std::string hosts : {"ab", "abcd", "aabb", "aaaabbbbccccdddd", "aabbccddeeffgghh"})
    EXPECT_TRUE(halves(hosts, ReduceOp::sum)) << hosts;
  for (const std::string hosts : {"abc", "aabbcc", "abab", "aaabbb", "aab", "aabbccd"})
    EXPECT_FALSE(halves(hosts, ReduceOp::sum)) << hosts;
  for (const std::string hosts : {"abab", "aaabbb", "aab", "aabbccd"})
    EXPECT_TRUE(halves(hosts, ReduceOp::max)) << hosts;
  EXPECT_FALSE(halves("abc", ReduceOp::max));
}

TEST(PartialSums, OneOfAHostWhereTheOrderIsFree) {
  const PartialSums sums(placed("ababab"));
  for (const ReduceOp::Kind kind : {ReduceOp::min, ReduceOp::max})
    EXPECT_EQ(sums.values(DType::f32, kind).most, 1u);
  EXPECT_EQ(sums.values(DType::i32, ReduceOp::sum).most, 1u);
  EXPECT_EQ(sums.values(DType::f32, ReduceOp::sum).most, 3u);
  EXPECT_EQ(sums.values(DType::c64, ReduceOp::avg).most, 3u);
}

}}  // namespace c10d
