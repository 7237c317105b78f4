// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/replay_op.h"

#include <algorithm>

namespace c10d::bench {

bool takes_part(const ReplayOp& op, std::size_t rank) noexcept {
  return !op.as_case.end || op.as_case.end->rank() == static_cast<int>(rank);
}

Span common_span(std::span<const Span> of_ranks) {
  Span all = of_ranks.front();
  for (const Span& span : of_ranks)
    all = {std::max(all.start, span.start), std::max(all.end, span.end)};
  return {all.start, std::max(all.start, all.end)};
}

}  // namespace c10d::bench
