// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "bench/analyse/summary.h"

namespace c10d::bench {

// What a reader of the numbers must know about them: controls that tell of noise, ranks that met at
// different distances, cells whose blocks fall into two groups, ranks that lost their CPU, results
// that differ between backends. `min_effect` is the difference that the run should be able to tell.
std::vector<WarnRecord> findings(const Results& results, const Summary& summary, double min_effect);

}  // namespace c10d::bench
