// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "c10d/parallel/checkpoint.h"

namespace c10d { inline namespace v0 { namespace parallel {

// What a rank holds, as it tells the others: without memory behind it.
struct DescribedPart {
  ParamSpec spec;
  std::uint64_t offset = 0, count = 0;
  bool operator==(const DescribedPart&) const = default;
};
// Throws CheckpointError for a part that cannot be.
std::vector<DescribedPart> describe_parts(std::span<const TensorPart> parts);
void to_json(nlohmann::json& json, const DescribedPart& part);
std::vector<DescribedPart> parse_parts(const nlohmann::json& list);

// Elements [offset, offset + count) of tensors[tensor], which `rank` writes out of its part `part`.
struct PlannedPiece {
  std::size_t tensor;
  std::uint64_t offset, count;
  int rank;
  std::size_t part;
};
struct SavePlan {
  std::vector<ParamSpec> tensors;    // by name
  std::vector<PlannedPiece> pieces;  // by tensor, then offset
};
// Every element is written once, by the lowest rank that has it. Throws CheckpointError when ranks
// describe a tensor differently or an element is on no rank.
SavePlan make_save_plan(const std::vector<std::vector<DescribedPart>>& ranks);

}}}  // namespace c10d::v0::parallel
