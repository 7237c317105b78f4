// SPDX-License-Identifier: BSD-3-Clause
#include "bench/stats.h"

#include <algorithm>
#include <cmath>
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

}  // namespace

Estimate bootstrap(const std::vector<std::vector<double>>& values, std::uint64_t seed,
                   int resamples) {
  std::vector<std::vector<double>> launches;
  std::size_t count = 0;
  for (const std::vector<double>& blocks : values) {
    if (blocks.empty()) continue;
    launches.push_back(blocks);
    count += blocks.size();
  }
  Estimate result;
  result.value = centre(launches);
  result.over_launches = launches.size() > 1;
  if (count < 2) return result;
  std::mt19937_64 random(seed);
  std::vector<double> centres;
  centres.reserve(static_cast<std::size_t>(resamples));
  std::vector<std::vector<double>> sample(launches.size());
  for (int i = 0; i < resamples; ++i) {
    for (std::vector<double>& blocks : sample) {
      const std::vector<double>& source = launches[draw(random, launches.size())];
      blocks.clear();
      for (std::size_t b = 0; b < source.size(); ++b)
        blocks.push_back(source[draw(random, source.size())]);
    }
    centres.push_back(centre(sample));
  }
  std::sort(centres.begin(), centres.end());
  result.ci95 = Interval{quantile(centres, 0.025), quantile(centres, 0.975)};
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

}  // namespace c10d::bench
