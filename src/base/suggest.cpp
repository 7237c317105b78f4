// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace c10d { inline namespace v0 {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> names,
                         std::size_t tolerance) {
  std::string_view best;
  std::size_t best_distance = std::max(tolerance, word.size() / 3) + 1;
  for (std::string_view name : names) {
    const std::size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

}}  // namespace c10d::v0
