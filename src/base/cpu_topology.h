// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "c10d/export.h"
#include "c10d/launch.h"

namespace c10d { inline namespace v0 {

// Where an allowed CPU stands, as the system claims it (hwloc). A virtual machine may claim what is
// not so: what ranks measure between each other counts more. Equal numbers: shared; -1: not known.
struct CpuPlace {
  int cpu = 0;
  int core = -1;
  int l3 = -1;
  int numa_node = -1;
  int package = -1;
};

// The places of the CPUs that this process may run on, neighbours beside each other. With
// `synthetic`, those of a machine that is described in hwloc's words ("numa:2 pu:4"); empty when
// hwloc cannot tell.
C10D_API std::vector<CpuPlace> cpu_places(const char* synthetic = nullptr);
// How many different ones there are; unknown ones count as one.
C10D_API int count_places(const std::vector<CpuPlace>& places, int CpuPlace::*kind);

// The CPUs of each of `ranks` ranks. Empty with CpuBinding::none. With `overload`, ranks may have
// to share a CPU. Throws InvalidArgument when there are too few, or when `places` is empty.
C10D_API std::vector<std::vector<int>> bind_cpus(const std::vector<CpuPlace>& places,
                                                 CpuBinding binding, int ranks, bool overload);

}}  // namespace c10d::v0
