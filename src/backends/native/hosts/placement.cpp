// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/placement.h"

#include <algorithm>

#include "src/backends/native/collectives/staged_steps.h"
#include "src/net/mesh/rank_grid.h"

namespace c10d { inline namespace v0 { namespace native {

Placement::Placement(int rank, const std::vector<std::string>& hosts)
    : rank_(rank), host_of_(hosts.size()), place_of_(hosts.size()), ranks_(ranks_by_host(hosts)) {
  for (int host = 0; host < this->hosts(); ++host)
    for (int place = 0; place < ranks_on(host); ++place) {
      const int other = ranks_of(host)[static_cast<std::size_t>(place)];
      host_of_[static_cast<std::size_t>(other)] = host;
      place_of_[static_cast<std::size_t>(other)] = place;
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
