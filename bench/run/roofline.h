// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "bench/model/record.h"
#include "bench/run/session.h"

namespace c10d::bench {

// What bounds any collective on this host: memcpy per cache level, a flag between two cores, a
// stream through shared memory, loopback TCP. Takes about half a second and
// 256 MiB; throws InvalidArgument where these are not free.
std::vector<CeilRecord> measure_ceilings();

// Hands them to the session as context for its numbers: a run does not fail for want of them.
void take_ceilings(Session& session);
// Prints them; returns an exit code.
int print_ceilings(bool as_json);

}  // namespace c10d::bench
