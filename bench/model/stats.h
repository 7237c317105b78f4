// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace c10d::bench {

// The value below which the fraction `q` of `sorted` lies, with linear interpolation between order
// statistics (the default of numpy and R). `sorted` is not empty.
double quantile(const std::vector<double>& sorted, double q);
double median(std::vector<double> values);

// Below this many samples the 99th percentile is not known: 0.99^299 is about 0.05.
inline constexpr std::size_t kSamplesForP99 = 300;

struct Quantiles {
  double min = 0;
  double p50 = 0;
  double p90 = 0;
  std::optional<double> p99;
  double max = 0;
};
Quantiles quantiles(std::vector<double> values);

// The value below which the fraction `q` of the blocks' weight lies, where every block weighs the
// same, however many samples it has: a slow block that was cut short counts as much as a fast one.
// `blocks` hold at least one sample.
double balanced_quantile(const std::vector<const std::vector<double>*>& blocks, double q);

struct Interval {
  double low = 0;
  double high = 0;
};

// y = alpha + beta x, neither below zero, with the least sum of squared relative errors. `x` and
// `y` are positive and at least two.
struct LineFit {
  double alpha = 0;
  double beta = 0;
  double worst = 0;  // the largest |y - fit| / y
  double at(double x) const noexcept { return alpha + beta * x; }
};
LineFit fit_line(const std::vector<double>& x, const std::vector<double>& y);

// Where sorted values fall apart into two groups of at least two each, a gap of this factor
// between them; nothing when they do not. Returns the medians of both.
std::optional<std::pair<double, double>> two_modes(std::vector<double> values, double factor);

// What was estimated from launches x blocks. Without at least two values there is no interval.
struct Estimate {
  double value = 0;
  std::optional<Interval> ci95;
  bool over_launches = false;  // else the interval speaks about blocks inside one launch only
};

// values[launch][block], all positive. The estimate is the geometric mean over launches of each
// launch's median block; the interval is a percentile bootstrap that draws launches, then blocks
// inside them.
Estimate bootstrap(const std::vector<std::vector<double>>& values, std::uint64_t seed,
                   int resamples = 2000);

// The geometric mean of one positive value per launch, with the interval of Student's t of their
// logarithms: it holds with few launches too, where a bootstrap is too narrow.
Estimate geometric_mean(const std::vector<double>& values);

// The ratio of two estimates of launches that were not in turns: both are drawn independently.
Estimate bootstrap_ratio(const std::vector<std::vector<double>>& values,
                         const std::vector<std::vector<double>>& base, std::uint64_t seed,
                         int resamples = 2000);

enum class Verdict : std::uint8_t { same, slower, faster, none };
std::string_view to_string(Verdict verdict);
// Of a ratio (other / base): same when the whole interval is within 1 +- equiv, slower or faster
// when it excludes 1, else none.
Verdict verdict(const Estimate& ratio, double equiv);

// Of a ratio that should be 1, where differences from `least` on must be told: ok when the interval
// leaves no room for such a one; off when it excludes 1; wide when it holds 1, and more than that.
enum class Trust : std::uint8_t { ok, wide, off };
std::string_view to_string(Trust trust);
Trust trust_in(const Estimate& ratio, double least);

}  // namespace c10d::bench
