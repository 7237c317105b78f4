// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/cpu_topology.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "c10d/error.h"

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

using CpuSets = std::vector<std::vector<int>>;

CpuSets cpus_by(const std::vector<CpuPlace>& places, int CpuPlace::*kind) {
  std::map<int, std::vector<int>> by_place;
  for (const CpuPlace& place : places) by_place[place.*kind].push_back(place.cpu);
  CpuSets sets;
  for (auto& [number, cpus] : by_place) sets.push_back(std::move(cpus));
  return sets;
}

// Whole cores where there are enough, so that no two ranks share one.
CpuSets units_of(const std::vector<CpuPlace>& places, CpuBinding binding, std::size_t ranks,
                 bool overload) {
  CpuSets cores = cpus_by(places, &CpuPlace::core);
  if (places.front().core < 0) cores = cpus_by(places, &CpuPlace::cpu);
  CpuSets units = binding == CpuBinding::core || cores.size() >= ranks
                      ? std::move(cores)
                      : cpus_by(places, &CpuPlace::cpu);
  if (units.size() < ranks && !overload)
    throw InvalidArgument(fmt::format(
        "{} ranks need a {} each to be bound, and this process may use {}; start fewer ranks, do "
        "not bind them, or let them share: --bind {}:overload-allowed, "
        "LaunchOptions::overload_cpus",
        ranks, binding == CpuBinding::core ? "core" : "CPU", units.size(),
        binding == CpuBinding::core ? "core" : "share"));
  return units;
}

std::vector<int> share_of(const CpuSets& units, std::size_t rank, std::size_t ranks) {
  const std::size_t from = rank * units.size() / ranks;
  const std::size_t to = std::max(from + 1, (rank + 1) * units.size() / ranks);
  std::vector<int> cpus;
  for (std::size_t unit = from; unit < to; ++unit)
    cpus.insert(cpus.end(), units[unit].begin(), units[unit].end());
  return cpus;
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
                      .core = index_above(topology.get(), pu, HWLOC_OBJ_CORE),
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

std::vector<std::vector<int>> bind_cpus(const std::vector<CpuPlace>& places, CpuBinding binding,
                                        int ranks, bool overload) {
  if (binding == CpuBinding::none) return {};
  if (places.empty())
    throw InvalidArgument("ranks cannot be bound to CPUs: hwloc does not know those of this host");
  const auto n = static_cast<std::size_t>(ranks);
  const bool is_part = binding == CpuBinding::share || binding == CpuBinding::core;
  const CpuSets sets = is_part
                           ? units_of(places, binding, n, overload)
                           : cpus_by(places, binding == CpuBinding::l3     ? &CpuPlace::l3
                                             : binding == CpuBinding::numa ? &CpuPlace::numa_node
                                                                           : &CpuPlace::package);
  CpuSets of_ranks;
  for (std::size_t rank = 0; rank < n; ++rank) {
    if (binding == CpuBinding::share)
      of_ranks.push_back(share_of(sets, rank, n));
    else
      of_ranks.push_back(sets[is_part ? rank * sets.size() / n : rank % sets.size()]);
  }
  return of_ranks;
}

}}  // namespace c10d::v0
