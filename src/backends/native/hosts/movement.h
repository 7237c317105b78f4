// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "src/backends/native/hosts/host_collective.h"

// What the ops that move blocks share.
namespace c10d { inline namespace v0 { namespace native {

// The blocks of all ranks, one after the other, of equal size or as `counts` says; in elements.
class RankBlocks {
 public:
  RankBlocks(const Placement& placement, std::size_t count);
  RankBlocks(const Placement& placement, std::span<const std::size_t> counts);

  std::size_t count(int rank) const noexcept { return counts_[static_cast<std::size_t>(rank)]; }
  std::size_t offset(int rank) const noexcept { return offsets_[static_cast<std::size_t>(rank)]; }
  // The same if host comes after host.
  std::size_t offset_by_host(int rank) const noexcept {
    return host_offsets_[static_cast<std::size_t>(rank)];
  }
  std::size_t total() const noexcept { return offsets_.back(); }
  bool are_equal() const noexcept {
    return std::ranges::count(counts_, counts_[0]) == std::ssize(counts_);
  }
  // Where the blocks of a host are then.
  Range of_host(int host) const noexcept { return hosts_[static_cast<std::size_t>(host)]; }
  // The counts of its ranks, by place.
  std::vector<std::size_t> counts_on(int host) const;

  // Copies blocks between the order of ranks and that of hosts, where they differ.
  void to_hosts(std::byte* to, const std::byte* from, std::size_t element) const;
  void to_ranks(std::byte* to, const std::byte* from, std::size_t element) const;

 private:
  void lay_out();

  const Placement& placement_;
  std::vector<std::size_t> counts_, offsets_, host_offsets_;  // by rank
  std::vector<Range> hosts_;
};

template <class AnyView>
AnyView part_of(const AnyView& view, Range range) {
  return view.slice(range.first, range.count);
}

// Equal parts of so many elements, one after the other; the last one has what is left.
class Parts {
 public:
  explicit Parts(std::size_t total) noexcept : Parts(total, total) {}
  Parts(std::size_t total, std::size_t each) noexcept : total_(total), each_(each) {}
  std::size_t count() const noexcept { return total_ == 0 ? 0 : (total_ - 1) / each_ + 1; }
  Range operator[](std::size_t part) const noexcept {
    const std::size_t first = part * each_;
    return {first, std::min(each_, total_ - first)};
  }

 private:
  std::size_t total_, each_;
};

// The parts in which `count` elements go between hosts while ranks of a host reduce or copy others:
// one where each host has one rank.
Parts parts_of(const Placement& placement, std::size_t count, DType dtype);
constexpr std::size_t kPartOfLane = std::size_t{1} << 20;  // bytes that a lane carries of one

// The range of the block at this place, where blocks with such counts follow one another.
Range range_of(const std::vector<std::size_t>& counts, int place);

// Parts of `count` elements that lanes carry, by place.
std::vector<std::size_t> counts_of_lanes(const Placement& placement, int host, std::size_t count,
                                         std::size_t element);

// Every lane has its part of `data` in place: all ranks of this host get all of it.
bool share_lanes(HostCollective& collective, const View& data);
// The same with `counts` of the ranks of this host, by place.
bool share(HostCollective& collective, const View& data, const std::vector<std::size_t>& counts);

}}}  // namespace c10d::v0::native
