// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace c10d { inline namespace v0 { namespace native {

// Elements [first, first + count).
struct Range {
  std::size_t first = 0;
  std::size_t count = 0;
};

// Which rank of a group is on which host. Hosts count in the order of their lowest ranks, and the
// ranks of a host from the lowest on: that is a rank's `place`. Ranks of one place are twins. A
// lane is a place that every host has: so many ranks of a host carry what goes to another host,
// each to its twin.
class Placement {
 public:
  // `hosts`: by rank, what is equal for ranks of one host.
  Placement(int rank, const std::vector<std::string>& hosts);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(host_of_.size()); }
  int hosts() const noexcept { return static_cast<int>(ranks_.size()); }
  int lanes() const noexcept { return lanes_; }

  int host() const noexcept { return host_of(rank_); }
  // The host i places after this one: ranks start at different hosts.
  int host_after(int i) const noexcept { return (host() + i) % hosts(); }
  int place() const noexcept { return place_of(rank_); }
  bool is_lane() const noexcept { return place() < lanes_; }
  bool all_are_lanes() const noexcept { return lanes_ == most_ranks_; }  // on every host
  int host_of(int rank) const noexcept { return host_of_[static_cast<std::size_t>(rank)]; }
  int place_of(int rank) const noexcept { return place_of_[static_cast<std::size_t>(rank)]; }
  // Ascending.
  const std::vector<int>& ranks_of(int host) const noexcept {
    return ranks_[static_cast<std::size_t>(host)];
  }
  const std::vector<int>& neighbours() const noexcept { return ranks_of(host()); }
  int most_ranks() const noexcept { return most_ranks_; }  // of one host
  int ranks_on(int host) const noexcept { return static_cast<int>(ranks_of(host).size()); }
  // The rank of this place on another host. Only of a lane.
  int twin(int host) const noexcept { return ranks_of(host)[static_cast<std::size_t>(place())]; }
  // Whether the ranks of each host are neighbours: then host after host is rank after rank.
  bool in_order() const noexcept { return in_order_; }

  // Which part of `count` elements the rank of that place carries between hosts: up to kOneLane
  // bytes all in one lane; of more, whole cache lines of elements of `element` bytes.
  static constexpr std::size_t kOneLane = std::size_t{16} << 10;
  Range carried_by(int place, std::size_t count, std::size_t element) const noexcept;

 private:
  int rank_;
  std::vector<int> host_of_, place_of_;  // by rank
  std::vector<std::vector<int>> ranks_;  // by host
  int lanes_, most_ranks_;
  bool in_order_;
};

// Part `index` of `parts` of `count` elements: whole cache lines of them.
Range elements_of(std::size_t count, std::size_t element, int parts, int index) noexcept;

}}}  // namespace c10d::v0::native
