// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/mesh/rank_grid.h"

#include <algorithm>
#include <map>
#include <set>

namespace c10d { inline namespace v0 {

std::vector<std::vector<int>> ranks_by_host(const std::vector<std::string>& hosts) {
  std::vector<std::vector<int>> ranks;
  std::map<std::string, std::size_t> known;
  for (int rank = 0; rank < std::ssize(hosts); ++rank) {
    const auto [host, is_new] = known.emplace(hosts[static_cast<std::size_t>(rank)], ranks.size());
    if (is_new) ranks.emplace_back();
    ranks[host->second].push_back(rank);
  }
  return ranks;
}

RankGrid::RankGrid(const std::vector<std::string>& hosts) : positions_(hosts.size()) {
  const auto by_host = ranks_by_host(hosts);
  for (const std::vector<int>& ranks : by_host)
    ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  places_ = static_cast<int>(by_host.front().size());
  if (std::ranges::any_of(by_host, [&](const auto& ranks) { return std::ssize(ranks) != places_; }))
    places_ = size();
  for (int position = 0; position < size(); ++position)
    positions_[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(position)])] = position;
  for (int distance = 1; distance < places_; distance *= 2)
    steps_.push_back({distance, places_, 1});
  for (int distance = 1, count = size() / places_; distance < count; distance *= 2)
    steps_.push_back({distance, count, places_});
}

int RankGrid::moved(int rank, const Step& step, int by) const noexcept {
  const int position = positions_[static_cast<std::size_t>(rank)];
  const int from = position / step.ranks % step.count;
  const int ahead = (from + by) % step.count - from;
  const int to = position + ahead * step.ranks;
  return ranks_[static_cast<std::size_t>(to)];
}

int RankGrid::order(int rank, int other) const noexcept {
  const int own = positions_[static_cast<std::size_t>(rank)];
  const int theirs = positions_[static_cast<std::size_t>(other)];
  const int hosts = size() / places_;
  return (own / places_ - theirs / places_ + hosts) % hosts * places_ +
         (own % places_ - theirs % places_ + places_) % places_;
}

int RankGrid::rank_at(int rank, int order) const noexcept {
  const int own = positions_[static_cast<std::size_t>(rank)];
  const int hosts = size() / places_;
  const int host = (own / places_ - order / places_ + hosts) % hosts;
  const int place = (own % places_ - order % places_ + places_) % places_;
  const int position = host * places_ + place;
  return ranks_[static_cast<std::size_t>(position)];
}

std::vector<int> RankGrid::neighbours_of(int rank) const {
  std::set<int> ranks;
  if (size() <= kFew) ranks.insert(ranks_.begin(), ranks_.end());
  for (const Step& step : steps_) {
    ranks.insert(ahead(rank, step));
    ranks.insert(behind(rank, step));
  }
  ranks.erase(rank);
  return {ranks.begin(), ranks.end()};
}

}}  // namespace c10d::v0
