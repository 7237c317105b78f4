// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bench/model/options.h"

namespace c10d::bench {

// Prints what native does for one call: the plan, what it predicts, the bound, and a measurement.
// Starts the ranks unless a launcher did. Returns the exit code.
int run_explain(const Options& options);

}  // namespace c10d::bench
