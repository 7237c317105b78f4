// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/export.h"

namespace c10d::inline v0 {

// gethostname(): for people.
C10D_API const std::string& host_name();
// Equal for two processes if and only if they can share memory through an abstract AF_UNIX socket:
// boot id and network namespace.
C10D_API const std::string& host_identity();

// CPUs that this process may run on (cpuset and affinity).
C10D_API int allowed_cpus();

}  // namespace c10d::inline v0
