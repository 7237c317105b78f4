// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace c10d { inline namespace v0 {

// One algorithm that a backend can take for a call.
struct PlanOption {
  std::string name;       // as C10D_NATIVE_PLAN takes it, between hosts C10D_NATIVE_HOSTS_PLAN
  double us = 0;          // time that is expected on rank 0, in microseconds
  bool measured = false;  // whether c10d-bench tune measured it; else the built-in model says so
};
// The answer to a PlanQuery, for tools that tune and explain.
struct PlanReport {
  std::vector<PlanOption> options;  // the one that is taken, then the others; empty: no choice
  double bound_us = 0;              // no algorithm is expected to take less, in microseconds
  std::string fingerprint;          // of the groups for which measurements hold; empty: over hosts
  std::string path;                 // file of the measurements; empty: there is no folder for it
  std::string network;              // "21 us and 1.17 GB/s" between hosts; empty: on one host
  int values = 0;                   // of each host, for one sum: over hosts, of reductions
  double inputs = 0;                // and their bytes, as a multiple of those of the call
  bool forced = false;              // whether a variable names the option that is taken: over hosts
};

}}  // namespace c10d::v0
