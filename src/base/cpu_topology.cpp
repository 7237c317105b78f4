// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/cpu_topology.h"

#include <hwloc.h>

#include <memory>
#include <set>

namespace c10d { inline namespace v0 {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Destroy>;

Topology load(const char* synthetic) {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return {};
  Topology topology(made);
  if (synthetic != nullptr && hwloc_topology_set_synthetic(made, synthetic) != 0) return {};
  if (hwloc_topology_load(made) != 0) return {};
  return topology;
}

int index_above(hwloc_topology_t topology, hwloc_obj_t pu, hwloc_obj_type_t type) {
  const hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(topology, type, pu);
  return above == nullptr ? -1 : static_cast<int>(above->logical_index);
}

// Nodes hang beside the tree, not in it.
int node_of(hwloc_topology_t topology, hwloc_obj_t pu) {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr)
    if (hwloc_bitmap_isincluded(pu->cpuset, node->cpuset))
      return static_cast<int>(node->logical_index);
  return -1;
}

}  // namespace

std::vector<CpuPlace> cpu_places(const char* synthetic) {
  const Topology topology = load(synthetic);
  if (!topology) return {};
  const Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology.get())));
  const Bitmap bound(hwloc_bitmap_alloc());
  if (!allowed || !bound) return {};
  if (hwloc_topology_is_thissystem(topology.get()) != 0 &&
      hwloc_get_cpubind(topology.get(), bound.get(), HWLOC_CPUBIND_PROCESS) == 0)
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  std::vector<CpuPlace> places;
  hwloc_obj_t pu = nullptr;
  while ((pu = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PU, pu)) != nullptr) {
    if (!hwloc_bitmap_isset(allowed.get(), pu->os_index)) continue;
    places.push_back({.cpu = static_cast<int>(pu->os_index),
                      .l3 = index_above(topology.get(), pu, HWLOC_OBJ_L3CACHE),
                      .numa_node = node_of(topology.get(), pu),
                      .package = index_above(topology.get(), pu, HWLOC_OBJ_PACKAGE)});
  }
  return places;
}

int count_places(const std::vector<CpuPlace>& places, int CpuPlace::*kind) {
  std::set<int> different;
  for (const CpuPlace& place : places) different.insert(place.*kind);
  return static_cast<int>(different.size());
}

}}  // namespace c10d::v0
