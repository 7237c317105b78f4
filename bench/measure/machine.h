// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bench/model/record.h"
#include "c10d/env.h"
#include "src/base/host.h"  // host_name, cpu_model, allowed_cpus

namespace c10d::bench {

// What this host is: cpu, cores, numa, cgroup_cpus, kernel, virt, libs, and the environment
// variables of an allow-list. Values that look secret are left out. `about` is what each backend
// says of itself.
Json environment_json(const std::map<std::string, std::string>& about = {});

// The commit that this program was built from, with "-dirty" where files differed from it; empty
// when it was not built in a checkout.
const char* commit();
int numa_nodes();
// Whether a launcher has started ranks on other hosts too, where native does not work.
inline bool is_between_hosts(const LaunchInfo& launch) noexcept {
  return launch.local_size < launch.size;
}
// CPUs that the control group grants, e.g. 1.5; nothing when unlimited.
std::optional<double> cgroup_cpus();
// Bytes of the last-level cache.
std::uint64_t last_level_bytes();
// Load of the last minute.
double load_average();
// "other work runs here: load 1.5 on 4 CPUs": where that may be seen in times. Both are the host's:
// a launcher may have bound this process to one CPU of many.
std::optional<std::string> other_work();
// Throws InvalidArgument where `bytes` are more than the host, or the control group, has to give:
// "WHAT: x of memory, more than the y that are free; REMEDY".
void refuse_beyond_memory(std::uint64_t bytes, std::string_view what, std::string_view remedy);
// NAME=value of variables that may change a measurement.
std::map<std::string, std::string> relevant_variables();

}  // namespace c10d::bench
