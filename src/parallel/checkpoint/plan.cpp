// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "src/parallel/checkpoint/json.h"
#include "src/parallel/common/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

struct Held {
  std::uint64_t offset, end;
  int rank;
  std::size_t part;
};
struct HeldTensor {
  ParamSpec spec;
  int rank;  // that described it first
  std::vector<Held> parts;
};

void plan_tensor(std::size_t index, HeldTensor& tensor, std::vector<PlannedPiece>& pieces) {
  std::ranges::sort(tensor.parts, {},
                    [](const Held& part) { return std::pair(part.rank, part.offset); });
  const std::uint64_t count = tensor.spec.count();
  for (std::uint64_t at = 0; at < count;) {
    const Held* writer = nullptr;
    std::uint64_t end = count;  // where a lower rank could take over
    for (const Held& part : tensor.parts) {
      if (part.offset > at) end = std::min(end, part.offset);
      if (part.offset > at || part.end <= at) continue;
      writer = &part;
      break;
    }
    if (!writer)
      refuse_checkpoint("elements {} to {} of {}, {}, are on no rank", at, end, tensor.spec.name,
                        to_text(tensor.spec));
    end = std::min(end, writer->end);
    pieces.push_back({index, at, end - at, writer->rank, writer->part});
    at = end;
  }
}

}  // namespace

std::vector<DescribedPart> describe_parts(std::span<const TensorPart> parts) {
  std::vector<DescribedPart> list;
  for (const TensorPart& part : parts) {
    check_list("checkpoint", {&part.spec, 1});
    const std::size_t width = size_of(part.spec.dtype), elements = part.data.size() / width;
    if (part.data.size() % width != 0)
      refuse_checkpoint("{}: {} bytes are no whole elements of {}", part.spec.name,
                        part.data.size(), to_string(part.spec.dtype));
    if (part.offset > part.spec.count() || elements > part.spec.count() - part.offset)
      refuse_checkpoint("{}: elements {} to {}, but {} has {}", part.spec.name, part.offset,
                        part.offset + elements, to_text(part.spec), part.spec.count());
    list.push_back({part.spec, part.offset, elements});
  }
  return list;
}

void to_json(nlohmann::json& json, const DescribedPart& part) {
  json = to_json(part.spec);
  json["offset"] = part.offset;
  json["count"] = part.count;
}

std::vector<DescribedPart> parse_parts(const nlohmann::json& list) {
  static const std::string kWho = "a rank's list";
  std::vector<DescribedPart> parts;
  for (const nlohmann::json& value : list) {
    const JsonObject entry(value, kWho);
    parts.push_back({entry.spec(), entry.number("offset"), entry.number("count")});
  }
  return parts;
}

SavePlan make_save_plan(const std::vector<std::vector<DescribedPart>>& ranks) {
  std::map<std::string, HeldTensor> tensors;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t i = 0; i < ranks[rank].size(); ++i) {
      const DescribedPart& part = ranks[rank][i];
      const int holder = static_cast<int>(rank);
      HeldTensor& tensor =
          tensors.try_emplace(part.spec.name, HeldTensor{part.spec, holder, {}}).first->second;
      if (tensor.spec != part.spec)
        throw CheckpointError(
            {.message = fmt::format("{} is {} on rank {} and {} on rank {}", part.spec.name,
                                    to_text(tensor.spec), tensor.rank, to_text(part.spec), rank),
             .rank = holder});
      if (part.count > 0)
        tensor.parts.push_back({part.offset, part.offset + part.count, holder, i});
    }
  }
  SavePlan plan;
  for (auto& [name, tensor] : tensors) {
    plan_tensor(plan.tensors.size(), tensor, plan.pieces);
    plan.tensors.push_back(tensor.spec);
  }
  return plan;
}

}}}  // namespace c10d::v0::parallel
