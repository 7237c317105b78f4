// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c10d/view.h"

namespace c10d::bench {

struct ExplainOptions {
  std::string op;
  std::uint64_t bytes = 0;
  DType dtype = DType::f32;
  bool registered = false;  // memory of the group's allocate()
  int ranks = 0;            // 0: two
};

// Prints what native does for one call: the plan, what it predicts, the bound, and a measurement.
// Unless a launcher has started it, starts itself with the arguments `argv`, as options.ranks
// ranks. Returns the exit code.
int run_explain(const ExplainOptions& options, const std::vector<std::string>& argv);

}  // namespace c10d::bench
