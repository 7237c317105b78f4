// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/parallel/fsdp.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Sums of squares go by blocks of a parameter, which no boundary between ranks cuts.
inline constexpr std::size_t kNormBlock = 4096;

// Where the parameters of a unit and the parts of the ranks lie in its arena.
struct UnitLayout {
  UnitLayout(const Unit& unit_, int size);

  std::size_t count() const noexcept { return begins.back(); }

  Unit unit;
  std::vector<std::size_t> begins;  // of each parameter, and the end
  std::vector<std::size_t> firsts;  // of each rank's part
  std::vector<std::size_t> counts;  // of each rank's part
};

// Why an engine cannot be made of this; empty when it can. Names are checked elsewhere.
std::string problem_of(std::span<const Unit> units, const FsdpOptions& options, int replicas);
// Virtual shards of one group of `replicas`; one per rank in mode fast.
int shards_of_group(const FsdpOptions& options, int size, int replicas) noexcept;
// For units of up to `largest` elements.
std::size_t gathered_buffers(const FsdpOptions& options, std::size_t units,
                             std::size_t largest) noexcept;

// All that ranks must agree on besides the parameters.
std::string options_text(std::span<const Unit> units, const FsdpOptions& options);

// Of the elements [first, first + shard.size()) of an arena.
std::vector<TensorPart> parts_of(const UnitLayout& layout, std::string_view prefix,
                                 std::span<float> shard, std::size_t first);

}}}  // namespace c10d::v0::parallel
