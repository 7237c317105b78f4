// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bench/model/options.h"

namespace c10d::bench {

// How much of an async all_reduce disappears behind computation that sleeps, or keeps the CPU busy.
// Starts two ranks of itself, unless a launcher has started it.
int run_overlap(const Options& options);

}  // namespace c10d::bench
