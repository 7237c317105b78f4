// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/fsdp/block_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// values[0] + values[1] + ... along a balanced tree.
double tree_sum_of(std::span<const double> values) noexcept {
  if (values.size() <= 1) return values.empty() ? 0 : values[0];
  const std::size_t half = values.size() / 2;
  return tree_sum_of(values.first(half)) + tree_sum_of(values.subspan(half));
}

double square_sum(std::span<const float> values) noexcept {
  std::array<double, 8> lanes{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    lanes[i % lanes.size()] += value * value;
  }
  return tree_sum_of(lanes);
}

}  // namespace

void BlockNorm::add(const UnitLayout& layout, std::size_t first, std::span<const float> part) {
  const std::vector<std::size_t>& begins = layout.begins;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    for (std::size_t at = begins[i]; at < begins[i + 1]; at += kNormBlock) {
      const bool is_here = at >= first && at < first + part.size();
      const std::size_t length = std::min(kNormBlock, begins[i + 1] - at);
      blocks_.push_back(is_here ? square_sum(part.subspan(at - first, length)) : 0);
    }
    ends_.push_back(blocks_.size());
  }
}

double BlockNorm::result(const ProcessGroup* group) {
  if (group) group->all_reduce(blocks_);  // zeros of the others change no bit
  std::vector<double> sums;
  std::size_t first = 0;
  for (const std::size_t end : ends_) {
    sums.push_back(tree_sum_of(std::span(blocks_).subspan(first, end - first)));
    first = end;
  }
  return std::sqrt(tree_sum_of(sums));
}

}}}  // namespace c10d::v0::parallel
