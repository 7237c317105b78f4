// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "c10d/process_group.h"
#include "src/parallel/fsdp/unit_layout.h"

namespace c10d { inline namespace v0 { namespace parallel {

// The 2-norm of values that ranks hold in parts. A sum of squares goes by blocks of kNormBlock
// elements of a parameter, each of them on one rank, then along a tree over the blocks: the bits
// do not depend on the parts.
class BlockNorm {
 public:
  // Elements [first, first + part.size()) of an arena.
  void add(const UnitLayout& layout, std::size_t first, std::span<const float> part);
  // Collective over the group that holds the parts; null: this rank holds all.
  double result(const ProcessGroup* group);

 private:
  std::vector<double> blocks_;     // sums of squares; 0 where another rank has the block
  std::vector<std::size_t> ends_;  // of each parameter, in blocks
};

}}}  // namespace c10d::v0::parallel
