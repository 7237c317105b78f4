// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/backends/native/hosts/partial_sums.h"
#include "src/backends/native/hosts/placement.h"
#include "src/backends/native/hosts/schedule.h"
#include "src/backends/native/links/network_profile.h"
#include "src/backends/native/plan/algorithm_plan.h"

// Which algorithm an op takes between hosts: the one of the least predicted time. All that decides
// is equal on every rank, so all take the same one.
namespace c10d { inline namespace v0 { namespace native {

// One op between hosts, as far as its time depends on it. Sizes are in bytes.
struct HostTraffic {
  OpKind op = OpKind::all_reduce;
  int hosts = 2;
  int lanes = 1;            // that carry it, where it is not little
  std::size_t inputs = 0;   // that a host has: in reductions all its partial sums; of a root
  std::size_t sums = 0;     // of one sum of several hosts' inputs
  std::size_t results = 0;  // reductions: of the whole vector
  std::size_t values = 0;   // reductions: partial sums of a host
  bool halves = false;      // whether halving applies: see PartialSums::Values

  int busy_lanes() const noexcept {
    return (is_reduction(op) ? results : inputs) <= Placement::kOneLane ? 1 : lanes;
  }
};
// Of a reduction of `count` elements.
HostTraffic reduction_traffic(const Placement& placement, const PartialSums::Values& sums,
                              OpKind op, DType dtype, ReduceOp::Kind kind,
                              std::size_t count) noexcept;

// "21 us and 1.17 GB/s": of a short message and of many bytes, both ways at once.
std::string to_text(const NetworkProfile& network);
std::string_view name_of(HostAlgorithm algorithm) noexcept;
bool applies(HostAlgorithm algorithm, const HostTraffic& traffic) noexcept;
// Microseconds between hosts. Only of an algorithm that applies.
double predicted_us(HostAlgorithm algorithm, const HostTraffic& traffic,
                    const NetworkProfile& network) noexcept;
HostAlgorithm choose(const HostTraffic& traffic, const NetworkProfile& network) noexcept;

// What the ops of one group take.
class HostPlan {
 public:
  // `forced` is C10D_NATIVE_HOSTS_PLAN: "halving", or with "op=" before it, by commas. It does not
  // count where it does not apply. "overlap" and "no_overlap" are of all ops. What names neither,
  // no algorithm, or none of that op, goes to `warnings`.
  HostPlan(const NetworkProfile& network, std::string forced, std::vector<std::string>& warnings);

  HostAlgorithm find(const HostTraffic& traffic) const noexcept {
    const auto forced = forced_on(traffic);
    return forced ? *forced : choose(traffic, network_);
  }
  // Whether an algorithm is forced on the op, where it applies.
  bool forces(OpKind op) const noexcept { return by_op_[planned_index(op)].has_value(); }
  // Whether stages in the hosts and blocks between them overlap, in ops of many bytes.
  bool overlaps() const noexcept { return overlaps_; }
  PlanReport report(const HostTraffic& traffic) const;
  const std::string& forced() const noexcept { return forced_; }
  const NetworkProfile& network() const noexcept { return network_; }

 private:
  std::optional<HostAlgorithm> forced_on(const HostTraffic& traffic) const noexcept {
    const auto& forced = by_op_[planned_index(traffic.op)];
    return forced && applies(*forced, traffic) ? forced : std::nullopt;
  }

  NetworkProfile network_;
  std::string forced_;
  bool overlaps_;
  std::array<std::optional<HostAlgorithm>, kPlannedOps + 1> by_op_;  // by planned_index()
};

}}}  // namespace c10d::v0::native
