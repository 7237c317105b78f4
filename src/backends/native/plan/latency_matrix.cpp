// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/plan/latency_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/backends/native/plan/algorithm_plan.h"

namespace c10d { inline namespace v0 { namespace native {

std::vector<int> near_groups(const RoundTrips& trips, int size) {
  std::vector<int> group(static_cast<std::size_t>(size), 0);
  if (trips.ns.empty()) return group;
  std::uint32_t nearest = std::numeric_limits<std::uint32_t>::max();
  for (int a = 0; a < size; ++a)
    for (int b = a + 1; b < size; ++b) nearest = std::min(nearest, trips.between(a, b));
  // Each rank joins the first group with a member that is near; ranks come in order, so groups are
  // numbered by their first rank.
  int groups = 0;
  for (int rank = 0; rank < size; ++rank) {
    int& own = group[static_cast<std::size_t>(rank)] = -1;
    for (int other = 0; other < rank && own < 0; ++other)
      if (trips.between(rank, other) / 2 <= nearest) own = group[static_cast<std::size_t>(other)];
    if (own < 0) own = groups++;
  }
  return group;
}

std::string distances(const RoundTrips& trips, bool far) {
  std::string letters;
  for (int a = 0; a + 1 < trips.size; ++a) {
    if (a > 0) letters += ' ';
    for (int b = a + 1; b < trips.size; ++b) {
      const std::uint32_t ns = trips.between(a, b);
      letters += (ns > kBelievedNs ? far : ns > kFarNs) ? 'f' : 'n';
    }
  }
  const bool some_near = letters.find('n') != letters.npos;
  const bool some_far = letters.find('f') != letters.npos;
  if (some_near && some_far) return letters;
  return some_far || (far && !some_near) ? "far" : "near";
}

std::string describe(const RoundTrips& trips, double used_us) {
  if (trips.ns.empty()) return {};
  std::uint32_t least = std::numeric_limits<std::uint32_t>::max(), most = 0;
  for (int a = 0; a < trips.size; ++a)
    for (int b = a + 1; b < trips.size; ++b) {
      if (trips.between(a, b) > kBelievedNs) continue;
      least = std::min(least, trips.between(a, b));
      most = std::max(most, trips.between(a, b));
    }
  if (most == 0) return fmt::format("rtt {:.2f} us, assumed", used_us);
  const auto groups = near_groups(trips, trips.size);
  const int count = *std::max_element(groups.begin(), groups.end()) + 1;
  const std::string range = least == most ? fmt::format("{:.2f}", least * 1e-3)
                                          : fmt::format("{:.2f}-{:.2f}", least * 1e-3, most * 1e-3);
  return fmt::format("rtt {} us{}", range, count > 1 ? fmt::format(", {} groups", count) : "");
}

}}}  // namespace c10d::v0::native
