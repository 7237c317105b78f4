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

struct MeshDimension {
  std::string name;
  int size = 1;
};

// The ranks of a group as a grid with named dimensions. The last dimension is the innermost: its
// neighbours are neighbours in rank. {{"pp", 2}, {"dp", 2}, {"tp", 2}} makes rank 5 the position
// pp 1, dp 0, tp 1. One thread at a time.
class C10D_API Mesh {
 public:
  // Throws InvalidArgument unless the sizes are positive, their product is the size of the world,
  // and the names differ and are not empty. `world` must outlive the mesh. Sends nothing.
  Mesh(ProcessGroup& world, std::vector<MeshDimension> dimensions);

  const std::vector<MeshDimension>& dimensions() const noexcept { return dimensions_; }
  ProcessGroup& world() const noexcept { return *world_; }

  // These and ranks() and sub() throw InvalidArgument that lists the names.
  int size(std::string_view name) const;
  int rank(std::string_view name) const;  // this rank's position along that dimension

  // The ranks that differ from this one along `names` alone, in the order of the world: by its rank
  // in the dimension for one name.
  std::vector<int> ranks(std::span<const std::string_view> names) const;

  // The group of those ranks. Made at the first call, which all of them and no others take part in:
  // groups of the same members come in the same order on each. Lives as long as the mesh.
  ProcessGroup& sub(std::span<const std::string_view> names);
  ProcessGroup& sub(std::initializer_list<std::string_view> names) {
    return sub(std::span(names.begin(), names.size()));
  }
  ProcessGroup& sub(std::string_view name) { return sub(std::span(&name, 1)); }

 private:
  std::size_t index_of(std::string_view name) const;
  int position(int rank, std::size_t dimension) const noexcept;

  ProcessGroup* world_;
  std::vector<MeshDimension> dimensions_;
  std::map<std::string, ProcessGroup, std::less<>> groups_;  // by their names
};

}}}  // namespace c10d::v0::parallel
