// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace c10d::bench { namespace {

TEST(Stats, QuantilesInterpolateAsNumpyDoes) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(median({9, 1, 5}), 5);
}

TEST(Stats, P99NeedsThreeHundredSamples) {
  EXPECT_FALSE(quantiles(std::vector<double>(299, 1.0)).p99);
  EXPECT_TRUE(quantiles(std::vector<double>(300, 1.0)).p99);
}

TEST(Stats, ABlockOfFewSamplesWeighsAsMuchAsOneOfMany) {
  const std::vector<double> many(1000, 1.0);
  const std::vector<double> few = {5, 5};
  EXPECT_DOUBLE_EQ(balanced_quantile({&many, &few}, 0.5), 1);
  EXPECT_DOUBLE_EQ(balanced_quantile({&many, &few}, 0.75), 5);
}

TEST(Bootstrap, ConstantRatiosHaveAnIntervalOfNoWidth) {
  const Estimate estimate = bootstrap({{2, 2, 2}, {2, 2, 2}}, 1);
  EXPECT_DOUBLE_EQ(estimate.value, 2);
  ASSERT_TRUE(estimate.ci95);
  EXPECT_NEAR(estimate.ci95->low, 2, 1e-12);
  EXPECT_NEAR(estimate.ci95->high, 2, 1e-12);
  EXPECT_TRUE(estimate.over_launches);
}

TEST(Bootstrap, EstimateIsTheGeometricMeanOfLaunchMedians) {
  EXPECT_NEAR(bootstrap({{1, 1, 100}, {4, 4, 4}}, 1).value, 2, 1e-12);
}

TEST(Bootstrap, OneValueHasNoInterval) {
  const Estimate estimate = bootstrap({{3}}, 1);
  EXPECT_DOUBLE_EQ(estimate.value, 3);
  EXPECT_FALSE(estimate.ci95);
  EXPECT_FALSE(estimate.over_launches);
}

TEST(Bootstrap, ARatioVariesWithBothSides) {
  const std::vector<std::vector<double>> constant{{2, 2, 2}, {2, 2, 2}};
  const std::vector<std::vector<double>> spread{{1, 1, 1}, {1, 1, 1}, {4, 4, 4}, {4, 4, 4}};
  const Estimate same = bootstrap_ratio(constant, constant, 1);
  EXPECT_DOUBLE_EQ(same.value, 1);
  ASSERT_TRUE(same.ci95);
  EXPECT_NEAR(same.ci95->high, 1, 1e-12);
  for (const Estimate& estimate :
       {bootstrap_ratio(spread, constant, 1), bootstrap_ratio(constant, spread, 1)}) {
    EXPECT_NEAR(estimate.value, 1, 1e-12);
    ASSERT_TRUE(estimate.ci95);
    EXPECT_LT(estimate.ci95->low, 0.75);
    EXPECT_GT(estimate.ci95->high, 1.33);
  }
  EXPECT_FALSE(bootstrap_ratio(spread, {{3}}, 1).ci95);
}

TEST(Bootstrap, SeesTheSpreadBetweenLaunches) {
  // Blocks agree inside each launch; only launches differ. An interval over blocks would have no
  // width.
  const Estimate estimate = bootstrap({{1, 1, 1}, {1, 1, 1}, {4, 4, 4}, {4, 4, 4}}, 1);
  ASSERT_TRUE(estimate.ci95);
  EXPECT_LT(estimate.ci95->low, 1.5);
  EXPECT_GT(estimate.ci95->high, 2.7);
}

// The mean of m logs of launches that are N(mu, sigma): the interval's half width is near 1.96
// sigma / sqrt(m), and covers exp(mu) in about 95 of 100 experiments (a percentile bootstrap of 20
// is a little short of that).
TEST(Bootstrap, CoversTheTruthAsOftenAsItSays) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0.5, 0.2);
  constexpr int kLaunches = 20;
  constexpr int kExperiments = 300;
  int covered = 0;
  double width = 0;
  for (int i = 0; i < kExperiments; ++i) {
    std::vector<std::vector<double>> values;
    for (int launch = 0; launch < kLaunches; ++launch) values.push_back({std::exp(normal(random))});
    const Estimate estimate = bootstrap(values, static_cast<std::uint64_t>(i), 400);
    ASSERT_TRUE(estimate.ci95);
    covered += estimate.ci95->low <= std::exp(0.5) && std::exp(0.5) <= estimate.ci95->high ? 1 : 0;
    width += std::log(estimate.ci95->high / estimate.ci95->low) / kExperiments;
  }
  EXPECT_GE(covered, kExperiments * 88 / 100);
  EXPECT_LE(covered, kExperiments * 98 / 100);
  EXPECT_NEAR(width, 2 * 1.96 * 0.2 / std::sqrt(kLaunches), 0.02);
}

Estimate with(double low, double high) {
  Estimate estimate;
  estimate.value = std::sqrt(low * high);
  estimate.ci95 = Interval{low, high};
  return estimate;
}

TEST(Verdict, FollowsTheInterval) {
  EXPECT_EQ(verdict(with(0.99, 1.01), 0.02), Verdict::same);
  EXPECT_EQ(verdict(with(1.001, 1.01), 0.02), Verdict::same) << "clear, but too small to matter";
  EXPECT_EQ(verdict(with(1.01, 1.30), 0.02), Verdict::slower);
  EXPECT_EQ(verdict(with(0.50, 0.99), 0.02), Verdict::faster);
  EXPECT_EQ(verdict(with(0.90, 1.30), 0.02), Verdict::none);
  EXPECT_EQ(verdict(Estimate{5, std::nullopt, false}, 0.02), Verdict::none)
      << "no interval, no verdict";
}

TEST(Fit, RecoversALineByRelativeErrors) {
  const LineFit fit = fit_line({8, 1024, 65536, 1 << 20}, {2.008, 3.024, 67.536, 1050.576});
  EXPECT_NEAR(fit.alpha, 2, 1e-9);
  EXPECT_NEAR(fit.beta, 1e-3, 1e-12);
  EXPECT_LT(fit.worst, 1e-9);
  const LineFit falling = fit_line({1, 2, 3}, {30, 20, 10});
  EXPECT_EQ(falling.beta, 0) << "no negative pace";
  const LineFit late = fit_line({100, 200, 300}, {1, 20, 40});
  EXPECT_EQ(late.alpha, 0) << "no negative start-up";
}

TEST(Modes, NeedAGapAndTwoValuesOnEachSide) {
  EXPECT_FALSE(two_modes({1, 1.1, 1.2, 1.3}, 1.8));
  EXPECT_FALSE(two_modes({1, 1.1, 1.2, 5}, 1.8)) << "one value is an outlier";
  EXPECT_FALSE(two_modes({1, 5}, 1.8));
  const auto modes = two_modes({5.2, 1, 5, 1.1}, 1.8);
  ASSERT_TRUE(modes);
  EXPECT_DOUBLE_EQ(modes->first, 1.05);
  EXPECT_DOUBLE_EQ(modes->second, 5.1);
}

TEST(Control, OkMeansThatASmallDifferenceCanBeTold) {
  EXPECT_EQ(trust_in({1, Interval{0.98, 1.03}, true}, 0.05), Trust::ok);
  EXPECT_EQ(trust_in({1.02, Interval{1.01, 1.03}, true}, 0.05), Trust::ok)
      << "a bias too small to matter";
  EXPECT_EQ(trust_in({1, Interval{0.6, 46.5}, true}, 0.05), Trust::wide);
  EXPECT_EQ(trust_in({1.2, Interval{1.1, 1.3}, true}, 0.05), Trust::off);
  EXPECT_EQ(trust_in({1, std::nullopt, false}, 0.05), Trust::wide);
}

TEST(Stats, AGeometricMeanHasTheIntervalOfStudentsT) {
  // Logarithms -1, 0, 1: mean 0, deviation 1, t = 4.303 at two degrees of freedom.
  const Estimate estimate = geometric_mean({std::exp(-1.0), 1, std::exp(1.0)});
  EXPECT_NEAR(estimate.value, 1, 1e-12);
  ASSERT_TRUE(estimate.ci95);
  EXPECT_NEAR(std::log(estimate.ci95->high), 4.303 / std::sqrt(3.0), 1e-3);
  EXPECT_NEAR(std::log(estimate.ci95->low), -4.303 / std::sqrt(3.0), 1e-3);
  EXPECT_TRUE(estimate.over_launches);
  EXPECT_FALSE(geometric_mean({2}).ci95) << "one launch";
  EXPECT_EQ(geometric_mean({}).value, 0);
}

}}  // namespace c10d::bench
