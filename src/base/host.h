// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// gethostname(): for people.
C10D_API const std::string& host_name();
// Equal for two processes if and only if they run on one host and see each other there: they can
// share memory through an abstract AF_UNIX socket, and look up each other's process.
C10D_API const std::string& host_identity();

// As /proc/cpuinfo names it; "unknown" where it does not.
C10D_API const std::string& cpu_model();
// CPUs that this process may run on (cpuset and affinity).
C10D_API int allowed_cpus();

}}  // namespace c10d::v0
