// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/process_group.h"

namespace c10d { inline namespace v0 { namespace parallel {

// One dimension of a Mesh.
struct MeshDimension {
  std::string name;  // "dp", "pp", ...
  int size = 1;      // number of positions along it
};

// The ranks of a group as a grid with named dimensions (torch: DeviceMesh). The last dimension is
// the innermost: neighbours along it have consecutive ranks. With {{"pp", 2}, {"dp", 2}, {"tp",
// 2}}, rank 5 is at pp 1, dp 0, tp 1. One thread at a time.
class C10D_API Mesh {
 public:
  // Local. Throws InvalidArgument unless the sizes are positive,
  // their product is world.size(), and the names are different and not empty.
  Mesh(const ProcessGroup& world, std::vector<MeshDimension> dimensions);

  // The dimensions, as they were given.
  const std::vector<MeshDimension>& dimensions() const noexcept { return dimensions_; }
  // The group of all ranks.
  const ProcessGroup& world() const noexcept { return world_; }

  // Size of a dimension. Throws InvalidArgument, which lists the names, for a name that does not
  // exist; so do rank(), ranks() and sub().
  int size(std::string_view name) const;
  // Position of this rank along a dimension.
  int rank(std::string_view name) const;

  // The ranks of the world that share this rank's position in every other dimension, in order.
  std::vector<int> ranks(std::span<const std::string_view> names) const;

  // The group of the ranks of ranks(). Collective over these ranks at the first call, which makes
  // the group as new_group() does; ranks make groups of the same members in the same order. Later
  // calls return the same group. Throws what new_group() throws.
  ProcessGroup sub(std::span<const std::string_view> names);
  // Same contract: mesh.sub({"pp", "dp"}).
  ProcessGroup sub(std::initializer_list<std::string_view> names) {
    return sub(std::span(names.begin(), names.size()));
  }
  // Same contract, for one dimension.
  ProcessGroup sub(std::string_view name) { return sub(std::span(&name, 1)); }

 private:
  std::size_t index_of(std::string_view name) const;
  int position(int rank, std::size_t dimension) const noexcept;

  ProcessGroup world_;
  std::vector<MeshDimension> dimensions_;
  std::map<std::string, ProcessGroup, std::less<>> groups_;  // by their names
};

}}}  // namespace c10d::v0::parallel
