// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <random>
#include <utility>

namespace c10d::bench {

double quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double fraction = position - static_cast<double>(below);
  return sorted[below] + fraction * (sorted[below + 1] - sorted[below]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

Quantiles quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  Quantiles result{values.front(), quantile(values, 0.5), quantile(values, 0.9), std::nullopt,
                   values.back()};
  if (values.size() >= kSamplesForP99) result.p99 = quantile(values, 0.99);
  return result;
}

double balanced_quantile(const std::vector<const std::vector<double>*>& blocks, double q) {
  std::vector<std::pair<double, double>> weighted;
  double total = 0;
  for (const std::vector<double>* block : blocks) {
    for (const double value : *block)
      weighted.emplace_back(value, 1.0 / static_cast<double>(block->size()));
    if (!block->empty()) total += 1;
  }
  std::sort(weighted.begin(), weighted.end());
  double below = 0;
  for (const auto& [value, weight] : weighted) {
    below += weight;
    if (below >= q * total - 1e-12) return value;
  }
  return weighted.back().first;
}

LineFit fit_line(const std::vector<double>& x, const std::vector<double>& y) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double weight = 1 / (y[i] * y[i]);
    w += weight;
    wx += weight * x[i];
    wxx += weight * x[i] * x[i];
    wy += weight * y[i];
    wxy += weight * x[i] * y[i];
  }
  LineFit fit;
  const double determinant = w * wxx - wx * wx;
  fit.beta = determinant > 0 ? (w * wxy - wx * wy) / determinant : 0;
  fit.alpha = (wy - fit.beta * wx) / w;
  if (fit.beta < 0) fit = {wy / w, 0, 0};
  if (fit.alpha < 0) fit = {0, wxy / wxx, 0};
  for (std::size_t i = 0; i < x.size(); ++i)
    fit.worst = std::max(fit.worst, std::abs(y[i] - fit.at(x[i])) / y[i]);
  return fit;
}

std::optional<std::pair<double, double>> two_modes(std::vector<double> values, double factor) {
  std::sort(values.begin(), values.end());
  std::size_t split = 0;
  double widest = factor;
  for (std::size_t i = 2; i + 2 <= values.size(); ++i) {
    if (values[i - 1] <= 0 || values[i] / values[i - 1] < widest) continue;
    widest = values[i] / values[i - 1];
    split = i;
  }
  if (split == 0) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(split);
  return std::pair(median({values.begin(), middle}), median({middle, values.end()}));
}

namespace {

// Geometric mean over launches of the median over blocks.
double centre(const std::vector<std::vector<double>>& values) {
  double sum = 0;
  std::size_t launches = 0;
  for (const std::vector<double>& blocks : values) {
    if (blocks.empty()) continue;
    sum += std::log(median(blocks));
    ++launches;
  }
  return launches == 0 ? 0 : std::exp(sum / static_cast<double>(launches));
}

std::size_t draw(std::mt19937_64& random, std::size_t below) {
  return static_cast<std::size_t>(random() % below);
}

// Launches that have blocks, and how their centre varies: launches are drawn, then blocks inside
// them.
class Drawn {
 public:
  explicit Drawn(const std::vector<std::vector<double>>& values) {
    std::copy_if(values.begin(), values.end(), std::back_inserter(launches_),
                 [](const std::vector<double>& blocks) { return !blocks.empty(); });
    sample_.resize(launches_.size());
  }
  // The estimate without its interval.
  Estimate estimate() const { return {centre(launches_), {}, launches_.size() > 1}; }
  bool varies() const {
    return launches_.size() > 1 || (launches_.size() == 1 && launches_[0].size() > 1);
  }
  double next(std::mt19937_64& random) {
    for (std::vector<double>& blocks : sample_) {
      const std::vector<double>& source = launches_[draw(random, launches_.size())];
      blocks.clear();
      for (std::size_t b = 0; b < source.size(); ++b)
        blocks.push_back(source[draw(random, source.size())]);
    }
    return centre(sample_);
  }

 private:
  std::vector<std::vector<double>> launches_, sample_;
};

Interval middle_95(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {quantile(values, 0.025), quantile(values, 0.975)};
}

}  // namespace

Estimate bootstrap(const std::vector<std::vector<double>>& values, std::uint64_t seed,
                   int resamples) {
  Drawn drawn(values);
  Estimate result = drawn.estimate();
  if (!drawn.varies()) return result;
  std::mt19937_64 random(seed);
  std::vector<double> centres(static_cast<std::size_t>(resamples));
  for (double& drawn_centre : centres) drawn_centre = drawn.next(random);
  result.ci95 = middle_95(std::move(centres));
  return result;
}

namespace {

// The quantile 0.975 of Student's t.
double student_t(std::size_t degrees_of_freedom) {
  static constexpr std::array kExact = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                                        2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                                        2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  if (degrees_of_freedom <= kExact.size()) return kExact[degrees_of_freedom - 1];
  return 1.960 + 2.45 / static_cast<double>(degrees_of_freedom);
}

}  // namespace

Estimate geometric_mean(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double value : values) mean += std::log(value) / count;
  for (const double value : values) squares += std::pow(std::log(value) - mean, 2);
  Estimate result{std::exp(mean), {}, values.size() > 1};
  if (values.size() < 2) return result;
  const double half = student_t(values.size() - 1) * std::sqrt(squares / (count - 1) / count);
  result.ci95 = Interval{std::exp(mean - half), std::exp(mean + half)};
  return result;
}

Estimate bootstrap_ratio(const std::vector<std::vector<double>>& values,
                         const std::vector<std::vector<double>>& base, std::uint64_t seed,
                         int resamples) {
  Drawn above(values), below(base);
  const Estimate numerator = above.estimate(), denominator = below.estimate();
  Estimate result{numerator.value / denominator.value,
                  {},
                  numerator.over_launches && denominator.over_launches};
  if (!above.varies() || !below.varies()) return result;
  std::mt19937_64 random(seed);
  std::vector<double> ratios(static_cast<std::size_t>(resamples));
  for (double& ratio : ratios) ratio = above.next(random) / below.next(random);
  result.ci95 = middle_95(std::move(ratios));
  return result;
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::slower:
      return "slower";
    case Verdict::faster:
      return "faster";
    case Verdict::none:
      break;
  }
  return "no verdict";
}

Verdict verdict(const Estimate& ratio, double equiv) {
  if (!ratio.ci95) return Verdict::none;
  const Interval& ci = *ratio.ci95;
  if (ci.low >= 1 - equiv && ci.high <= 1 + equiv) return Verdict::same;
  if (ci.low > 1) return Verdict::slower;
  if (ci.high < 1) return Verdict::faster;
  return Verdict::none;
}

std::string_view to_string(Trust trust) {
  switch (trust) {
    case Trust::ok:
      return "ok";
    case Trust::wide:
      return "wide";
    case Trust::off:
      break;
  }
  return "off";
}

Trust trust_in(const Estimate& ratio, double least) {
  if (!ratio.ci95) return Trust::wide;
  const Interval& ci = *ratio.ci95;
  if (ci.low >= 1 - least && ci.high <= 1 + least) return Trust::ok;
  return ci.low <= 1 && ci.high >= 1 ? Trust::wide : Trust::off;
}

}  // namespace c10d::bench
