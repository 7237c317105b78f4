// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "c10d/parallel/reproducible.h"

namespace c10d { inline namespace v0 { namespace parallel {

// out = the root of the tree over [0, shards) / divisor, from the sums of nodes that cover it
// without overlap, in order. `out` may be one of the values or apart from all.
void fold(Tensor out, int shards, std::span<const ShardRange> nodes,
          std::span<const ConstTensor> values, double divisor);

}}}  // namespace c10d::v0::parallel
