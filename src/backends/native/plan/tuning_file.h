// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "c10d/capability.h"
#include "c10d/spi/plan.h"
#include "src/backends/native/plan/algorithm_plan.h"
#include "src/backends/native/plan/latency_matrix.h"

// What `c10d-bench tune` measured: $XDG_CACHE_HOME/c10d/tune/<hash of the fingerprint>.json.
namespace c10d { inline namespace v0 { namespace native {

// What the measured times depend on: CPU, allowed CPUs, ranks, which of them are near and which
// far, CMA, kernel, versions.
std::string fingerprint(const TeamProfile& host, const RoundTrips& trips);
// Empty when neither XDG_CACHE_HOME nor HOME is set.
std::string tuning_path(std::string_view fingerprint);

// The curves of a file for this fingerprint. A file that is not valid gives no curves and a
// sentence in `warnings`, whatever its bytes are.
std::vector<Curve> parse_tuning(std::string_view json, std::string_view fingerprint,
                                std::vector<std::string>& warnings);
// The same from the path; no file is no warning.
std::vector<Curve> load_tuning(const std::string& path, std::string_view fingerprint,
                               std::vector<std::string>& warnings);

PlanReport report_plan(const Plan& plan, const CostModel& costs, const RoundTrips& trips,
                       const PlanQuery& query);

}}}  // namespace c10d::v0::native
