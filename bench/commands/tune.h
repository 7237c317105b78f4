// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bench/model/options.h"

namespace c10d::bench {

// Measures every algorithm of native at a few sizes and writes what rank 0 of later groups like
// this one loads. Starts the ranks unless a launcher did. Returns the exit code.
int run_tune(const Options& options);

}  // namespace c10d::bench
