// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/collective.h"

namespace c10d::inline v0 {

// Throws InvalidArgument naming the op, the argument and the values when `op` makes no sense on
// this rank: counts, dtypes, devices, root or peer, missing buffers, partial overlap.
void check_arguments(const Op& op, int rank, int size);

}  // namespace c10d::inline v0
