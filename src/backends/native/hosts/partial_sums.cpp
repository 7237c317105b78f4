// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/partial_sums.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "kernels/reduce.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

PartialSums::Values made_of(std::vector<PartialSums::Value> all, int hosts) {
  PartialSums::Values values;
  values.of_.resize(static_cast<std::size_t>(hosts));
  for (std::size_t i = 0; i < all.size(); ++i) {
    values.ranks.push_back(all[i].ranks);
    values.of_[static_cast<std::size_t>(all[i].host)].push_back(i);
  }
  values.before.push_back(0);
  for (const auto& of_host : values.of_) {
    values.most = std::max(values.most, of_host.size());
    values.before.push_back(values.before.back() + of_host.size());
  }
  values.halves =
      std::has_single_bit(static_cast<unsigned>(hosts)) && values.most == 1 &&
      std::ranges::adjacent_find(values.ranks, std::not_equal_to<>()) == values.ranks.end();
  values.inputs = std::ranges::all_of(values.ranks, [](std::size_t ranks) { return ranks == 1; });
  values.all = std::move(all);
  return values;
}

}  // namespace

PartialSums::PartialSums(const Placement& placement) {
  std::vector<Value> ordered, unordered;
  const int size = placement.size();
  for (int first = 0, last = 0; first < size; first = last) {
    const int host = placement.host_of(first);
    for (last = first; last < size && placement.host_of(last) == host;) ++last;
    for (const TreeNode& node :
         tree_nodes(static_cast<std::size_t>(size), static_cast<std::size_t>(first),
                    static_cast<std::size_t>(last)))
      ordered.push_back({host, placement.place_of(static_cast<int>(node.first)), node.count});
  }
  for (int host = 0; host < placement.hosts(); ++host)
    unordered.push_back({host, 0, static_cast<std::size_t>(placement.ranks_on(host))});
  ordered_ = made_of(std::move(ordered), placement.hosts());
  unordered_ = made_of(std::move(unordered), placement.hosts());
  unordered_.inputs = false;
  unordered_.halves = std::has_single_bit(static_cast<unsigned>(placement.hosts()));
}

bool PartialSums::has_order(DType dtype, ReduceOp::Kind kind) noexcept {
  return (is_floating(dtype) || is_complex(dtype)) && rounds(kind);
}

}}}  // namespace c10d::v0::native
