// SPDX-License-Identifier: BSD-3-Clause
#pragma once

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

// Parts of `count` elements that lanes carry, by place.
std::vector<std::size_t> counts_of_lanes(const Placement& placement, int host, std::size_t count,
                                         std::size_t element);

// Every lane has its part of `data` in place: all ranks of this host get all of it.
bool share_lanes(HostCollective& collective, const View& data);

}}}  // namespace c10d::v0::native
