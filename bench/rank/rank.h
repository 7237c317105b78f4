// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "bench/model/options.h"
#include "bench/model/record.h"

namespace c10d::bench {

// The last record of a launch that measured all it was asked to; between rank 0 and the session
// only.
inline constexpr const char* kLaunchDone = "launch_done";

// Returns what `measure` returns; if it throws, prints that on stderr and returns its exit code.
int exit_code_of(const std::function<int()>& measure);

// One rank of one launch: makes the groups, runs every block of every case, and on rank 0 hands
// each record to `sink` as it comes. Returns an exit code; errors are printed on stderr and are in
// warn records.
int run_rank(const RunOptions& options, const Sink& sink);

}  // namespace c10d::bench
