// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/backends/native/hosts/host_plan.h"
#include "src/backends/native/hosts/partial_sums.h"
#include "src/backends/native/hosts/placement.h"
#include "src/backends/native/hosts/scratch.h"
#include "src/backends/native/links/links.h"
#include "src/backends/native/p2p/routes.h"
#include "src/backends/native/team/team.h"
#include "src/net/mesh/mesh.h"

namespace c10d { inline namespace v0 { namespace native {

// Of an op: while one is between hosts, ranks of a host have the next one, or the one before.
constexpr std::size_t kPartsUnderWay = 2;

// One rank's view of a group over several hosts: a team of the ranks on its host, and connections
// to all ranks on the others. An op that runs holds a reference.
class HostGroup {
 public:
  // Collective: returns when this rank is connected. `neighbours`: as for a Team, of this host.
  HostGroup(const BackendContext& context, int neighbours);

  const BackendContext& context() const noexcept { return context_; }
  Control& control() const noexcept { return *context_.control; }
  const Placement& placement() const noexcept { return placement_; }
  const std::shared_ptr<Team>& team() const noexcept { return team_; }
  const PartialSums& partial_sums() const noexcept { return partial_sums_; }
  const HostPlan& plan() const noexcept { return plan_; }
  // Whether ops of many bytes overlap their stages in hosts, if there are any, with their blocks.
  bool overlaps() const noexcept { return plan_.overlaps() && placement_.most_ranks() > 1; }

  // Only by the collective that runs: one at a time in a group.
  Links& links() noexcept { return links_; }
  const Links& links() const noexcept { return links_; }
  // Of parts of an op that follow one another.
  Scratch& scratch(std::size_t part = 0) noexcept { return scratch_[part % kPartsUnderWay]; }
  void reset_scratch() {
    for (Scratch& scratch : scratch_) scratch.reset();
  }

  // For Messages; once.
  Routes take_routes();
  // Of this host, on the networks that its collectives go over.
  const std::vector<std::string>& addresses() const noexcept { return connections_.addresses; }

 private:
  struct Connections {
    std::vector<std::string> hosts;                          // by rank, equal on one host
    std::vector<std::string> addresses;                      // of this host
    std::string forced;                                      // rank 0's plan between hosts
    std::vector<std::vector<Mesh::Connection>> collectives;  // by stream
    std::vector<Mesh::Connection> messages;
  };
  // All of it by then.
  HostGroup(const BackendContext& context, int neighbours, Deadline deadline);
  static Connections connect(const BackendContext& context, Deadline deadline);

  const BackendContext context_;
  Connections connections_;
  const Placement placement_;
  const PartialSums partial_sums_;
  const std::shared_ptr<Team> team_;
  Links links_;
  const HostPlan plan_;
  std::array<Scratch, kPartsUnderWay> scratch_;
};

// "2 hosts, 4 lanes over TCP from 10.0.0.1 (cubic), 21 us and 1.17 GB/s to the next host, stages
// overlap", and what the placement means for sums of floats.
std::string describe(const HostGroup& group);

}}}  // namespace c10d::v0::native
