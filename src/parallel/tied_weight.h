// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>

#include "src/parallel/pipeline_state.h"

namespace c10d::inline v0::parallel {

// Adds the gradients of one tied weight in the order of its stages, on the rank of the first; the
// other holders give theirs and get the sum. `left` gives the time for each call. Every rank goes
// through its tied weights in one order, so blocking calls cannot wait for each other.
void add_tied(const Pipeline::State& state, const TiedWeight& tied,
              const std::function<Duration()>& left);

}  // namespace c10d::inline v0::parallel
