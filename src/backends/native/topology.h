// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/backends/native/round_trips.h"
#include "src/backends/native/team.h"

namespace c10d::inline v0::native {

// Collective, once, before the first op of a group; 10 ms at most, and microseconds where ranks are
// few. Measures nothing where ranks share CPUs (that would measure the scheduler), where they are
// more than kMeasuredRanks, and in a group that breaks.
RoundTrips measure_round_trips(Team& team, Deadline deadline);

}  // namespace c10d::inline v0::native
