// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "bench/model/options.h"

namespace c10d::bench {

// The cases of these options at `ranks` ranks. Throws InvalidArgument when there is none.
std::vector<Case> cases_of(const CaseOptions& options, int ranks);

}  // namespace c10d::bench
