// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/host_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace c10d { namespace {

using native::HostAlgorithm;
using native::HostPlan;
using native::HostTraffic;

// An all_reduce of hosts with one rank each.
HostTraffic all_reduce(int hosts, std::size_t bytes) {
  return {.hosts = hosts,
          .inputs = bytes,
          .sums = bytes,
          .results = bytes,
          .halves = (hosts & (hosts - 1)) == 0};
}
HostAlgorithm chosen(const HostTraffic& traffic) { return native::choose(traffic, {}); }

TEST(HostPlan, TwoHostsReduceAllTwiceUpTo256KiB) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{256} << 10})
    EXPECT_EQ(chosen(all_reduce(2, bytes)), HostAlgorithm::one_shot) << bytes;
  for (const std::size_t bytes : {std::size_t{272} << 10, std::size_t{64} << 20})
    EXPECT_EQ(chosen(all_reduce(2, bytes)), HostAlgorithm::two_shot) << bytes;
}

TEST(HostPlan, ManyHostsTakeFewRoundsForFewBytes) {
  EXPECT_EQ(chosen(all_reduce(4, 8)), HostAlgorithm::one_shot);
  for (const int hosts : {16, 64, 100, 1024}) {
    EXPECT_EQ(chosen(all_reduce(hosts, 8)), HostAlgorithm::dissemination) << hosts;
    EXPECT_EQ(chosen({.op = OpKind::all_gather, .hosts = hosts, .inputs = 8}),
              HostAlgorithm::dissemination)
        << hosts;
    EXPECT_EQ(chosen({.op = OpKind::all_gather_v, .hosts = hosts, .inputs = 1 << 20}),
              HostAlgorithm::one_shot)
        << hosts;
  }
}

TEST(HostPlan, HalvesWhereTheTreeAllows) {
  EXPECT_EQ(chosen(all_reduce(64, 64 << 10)), HostAlgorithm::halving);
  HostTraffic traffic = all_reduce(64, 64 << 10);
  traffic.halves = false;
  EXPECT_EQ(chosen(traffic), HostAlgorithm::two_shot);
}

TEST(HostPlan, BroadcastsManyBytesAlongAChain) {
  const auto broadcast = [](int hosts, std::size_t bytes) {
    return HostTraffic{.op = OpKind::broadcast, .hosts = hosts, .inputs = bytes};
  };
  EXPECT_EQ(chosen(broadcast(2, 64 << 20)), HostAlgorithm::binomial);
  EXPECT_EQ(chosen(broadcast(3, 64 << 20)),
            HostAlgorithm::chain);  // of few bytes both take as long
  for (const int hosts : {4, 8, 64}) {
    EXPECT_EQ(chosen(broadcast(hosts, 8)), HostAlgorithm::binomial) << hosts;
    EXPECT_EQ(chosen(broadcast(hosts, 64 << 20)), HostAlgorithm::chain) << hosts;
  }
  EXPECT_EQ(chosen(broadcast(1024, 1 << 20)), HostAlgorithm::binomial);
  // Each host sends it once.
  const native::NetworkProfile network;
  const double once = (64 << 20) * network.us_per_byte;
  EXPECT_LT(native::predicted_us(HostAlgorithm::chain, broadcast(8, 64 << 20), network),
            1.02 * once);
  EXPECT_GT(native::predicted_us(HostAlgorithm::binomial, broadcast(8, 64 << 20), network),
            3 * once);
}

TEST(HostPlan, TakesWhatIsForcedWhereItApplies) {
  std::vector<std::string> warnings;
  const HostPlan plan({}, "all_reduce=halving,all_gather=dissemination,broadcast=chain", warnings);
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(plan.find(all_reduce(4, 8)), HostAlgorithm::halving);
  EXPECT_EQ(plan.find(all_reduce(5, 8)), HostAlgorithm::one_shot);
  EXPECT_EQ(plan.find(all_reduce(2, 8)), HostAlgorithm::one_shot);
  EXPECT_EQ(plan.find({.op = OpKind::all_gather_v, .hosts = 3, .inputs = 8}),
            HostAlgorithm::dissemination);
  EXPECT_TRUE(plan.forces(OpKind::all_gather_v));
  for (const int hosts : {2, 3})
    EXPECT_EQ(plan.find({.op = OpKind::broadcast, .hosts = hosts, .inputs = 8}),
              hosts == 2 ? HostAlgorithm::binomial : HostAlgorithm::chain);
  for (const OpKind op : {OpKind::reduce_scatter, OpKind::all_to_all, OpKind::scan})
    EXPECT_FALSE(plan.forces(op));
  const PlanReport report = plan.report(all_reduce(4, 8));
  ASSERT_EQ(report.options.size(), 4u);
  EXPECT_EQ(report.options[0].name, "halving");
  EXPECT_EQ(report.options[1].name, "one_shot");
}

TEST(HostPlan, OverlapsUnlessARankIsBusyWithTheNetwork) {
  std::vector<std::string> warnings;
  for (const double busy : {0.1, 0.9}) {
    const native::NetworkProfile network{.busy = busy};
    EXPECT_EQ(HostPlan(network, "", warnings).overlaps(), busy < 0.5);
    EXPECT_TRUE(HostPlan(network, "overlap,all_reduce=halving", warnings).overlaps());
    EXPECT_FALSE(HostPlan(network, "no_overlap", warnings).overlaps());
  }
  EXPECT_TRUE(warnings.empty());
  EXPECT_FALSE(HostPlan({}, "all_reduce=overlap", warnings).forces(OpKind::all_reduce));
  EXPECT_EQ(warnings.size(), 1u);
}

TEST(HostPlan, WarnsOfWhatNamesNothing) {
  for (const std::string forced : {"pull", "nonsense=halving", "all_gather=halving", ""}) {
    std::vector<std::string> warnings;
    const HostPlan plan({}, forced, warnings);
    EXPECT_EQ(warnings.size(), forced.empty() ? 0u : 1u) << forced;
    EXPECT_EQ(plan.find(all_reduce(4, 8)), HostAlgorithm::one_shot);
  }
}

// A gather of all inputs would take more memory than there may be.
TEST(HostPlan, GathersNoLargeReduction) {
  std::vector<std::string> warnings;
  const HostPlan plan({}, "dissemination", warnings);
  EXPECT_EQ(plan.find(all_reduce(4, 16 << 20)), HostAlgorithm::dissemination);
  EXPECT_NE(plan.find(all_reduce(4, 17 << 20)), HostAlgorithm::dissemination);
}

}}  // namespace c10d
