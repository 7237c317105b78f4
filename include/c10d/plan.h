// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c10d/collective.h"

namespace c10d { inline namespace v0 {

// What a backend that chooses between algorithms would do for a call, and what it expects of each:
// for tools that tune and explain.
struct PlanQuery {
  OpKind op = OpKind::all_reduce;
  DType dtype = DType::f32;
  std::uint64_t bytes = 0;  // of one rank's vector; of all shards together where there are shards
  bool registered = false;  // memory from ProcessGroup::allocate
};
struct PlanOption {
  std::string name;       // as C10D_NATIVE_PLAN takes it
  double us = 0;          // expected, on rank 0
  bool measured = false;  // by c10d-bench tune; else by the built-in model
};
struct PlanReport {
  std::vector<PlanOption> options;  // the one that is taken, then the others; empty: no choice
  double bound_us = 0;              // what no algorithm is expected to beat
  std::string fingerprint;          // of the groups that measurements hold for
  std::string path;                 // of their file; empty: there is no folder for it
};

}}  // namespace c10d::v0
