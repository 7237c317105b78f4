// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "bench/model/options.h"

namespace c10d::bench {

// The cases of these options at `ranks` ranks. Throws InvalidArgument when there is none.
std::vector<Case> cases_of(const CaseOptions& options, int ranks);

// Which sizes that were asked for are measured as others, because S is a whole number of elements
// on each of `ranks` ranks; empty: none.
std::string rounding_note(const CaseOptions& options, int ranks);

}  // namespace c10d::bench
