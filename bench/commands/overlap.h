// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace c10d::bench {

// How much of an async all_reduce disappears behind computation that sleeps, or keeps the CPU busy.
// Unless a launcher has started it, starts itself with the arguments `argv`, as two ranks.
int run_overlap(const std::vector<std::string>& argv);

}  // namespace c10d::bench
