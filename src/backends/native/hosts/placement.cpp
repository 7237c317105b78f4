// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/placement.h"

#include <algorithm>

#include "src/backends/native/collectives/staged_steps.h"

namespace c10d { inline namespace v0 { namespace native {

Placement::Placement(int rank, const std::vector<std::string>& hosts) : rank_(rank) {
  std::vector<std::string> seen;
  for (int other = 0; other < static_cast<int>(hosts.size()); ++other) {
    const auto name = std::ranges::find(seen, hosts[static_cast<std::size_t>(other)]);
    const auto host = static_cast<std::size_t>(name - seen.begin());
    if (name == seen.end()) {
      seen.push_back(hosts[static_cast<std::size_t>(other)]);
      ranks_.emplace_back();
    }
    host_of_.push_back(static_cast<int>(host));
    place_of_.push_back(static_cast<int>(ranks_[host].size()));
    ranks_[host].push_back(other);
  }
  lanes_ = size();
  most_ranks_ = 0;
  for (const std::vector<int>& ranks : ranks_) {
    lanes_ = std::min(lanes_, static_cast<int>(ranks.size()));
    most_ranks_ = std::max(most_ranks_, static_cast<int>(ranks.size()));
  }
  in_order_ = std::ranges::is_sorted(host_of_);
}

Range Placement::carried_by(int place, std::size_t count, std::size_t element) const noexcept {
  if (place >= lanes_) return {};
  if (count * element <= kOneLane) return place == 0 ? Range{0, count} : Range{count, 0};
  return elements_of(count, element, lanes_, place);
}

Range elements_of(std::size_t count, std::size_t element, int parts, int index) noexcept {
  const Part part = share_of(count * element, parts, index);  // elements divide a cache line
  return {part.first / element, part.bytes / element};
}

}}}  // namespace c10d::v0::native
