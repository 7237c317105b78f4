// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/pipeline/schedule_graph.h"

#include <algorithm>
#include <utility>

#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {

void check_extent(std::size_t stages, std::size_t micro_batches) {
  if (stages == 0 || micro_batches == 0) throw InvalidArgument("the schedule has no forward");
  if (stages > kMaxStages || micro_batches > kMaxMicroBatches || stages * micro_batches > kMaxCells)
    throw_invalid(
        "the schedule has {} stages and {} micro-batches; the limits are {}, {}, and "
        "{} for their product",
        stages, micro_batches, kMaxStages, kMaxMicroBatches, kMaxCells);
}

StageGraph::StageGraph(int stages, std::span<const Skip> skips)
    : into_(static_cast<std::size_t>(stages)), out_of_(static_cast<std::size_t>(stages)) {
  for (int stage = 0; stage + 1 < stages; ++stage) edges_.push_back({stage, stage + 1});
  for (const Skip& skip : skips) {
    if (skip.from < 0 || skip.to >= stages || skip.to <= skip.from + 1)
      throw_invalid(
          "a skip from stage {} to stage {} of {}: it must go further than to the next stage",
          skip.from, skip.to, stages);
    edges_.push_back(skip);
  }
  std::ranges::sort(edges_, {}, [](const Skip& edge) { return std::pair(edge.from, edge.to); });
  const auto repeated = std::ranges::adjacent_find(edges_);
  if (repeated != edges_.end())
    throw_invalid("two skips go from stage {} to stage {}", repeated->from, repeated->to);
  for (int index = 0; index < static_cast<int>(edges_.size()); ++index) {
    out_of_[static_cast<std::size_t>(edge(index).from)].push_back(index);
    // Sorted by source the stage before comes last; callbacks see it first.
    std::vector<int>& into = into_[static_cast<std::size_t>(edge(index).to)];
    const bool chain = edge(index).from + 1 == edge(index).to;
    into.insert(chain ? into.begin() : into.end(), index);
  }
}

bool crosses_ranks(const Action& action, const StageGraph& graph,
                   std::span<const int> rank_of_stage) {
  const auto elsewhere = [&](int other) {
    return rank_of_stage[static_cast<std::size_t>(other)] !=
           rank_of_stage[static_cast<std::size_t>(action.stage)];
  };
  const bool outwards = action.kind == ActionKind::send_f || action.kind == ActionKind::recv_b;
  if (outwards)
    return std::ranges::any_of(graph.out_of(action.stage),
                               [&](int index) { return elsewhere(graph.edge(index).to); });
  return std::ranges::any_of(graph.into(action.stage),
                             [&](int index) { return elsewhere(graph.edge(index).from); });
}

}}}  // namespace c10d::v0::parallel
