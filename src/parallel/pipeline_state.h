// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "c10d/parallel/pipeline.h"
#include "src/parallel/schedule_graph.h"

namespace c10d::inline v0::parallel {

// Of each edge and micro-batch: the header of the activation, its data, its gradient.
inline constexpr std::uint32_t kTagsPerMessage = 3;
inline constexpr std::uint32_t kGradientTag = 2;

struct Pipeline::State {
  State(ProcessGroup& group_, std::map<int, Stage*> stages_, PipelineOptions options_);

  int rank_of(int stage) const noexcept {
    return facts.rank_of_stage[static_cast<std::size_t>(stage)];
  }
  // What all ranks must agree on, in 64 bits.
  std::uint64_t digest() const;

  ProcessGroup& group;
  const std::map<int, Stage*> stages;
  const PipelineOptions options;
  const ScheduleFacts facts;
  const StageGraph graph;
  const std::vector<Action> actions;  // of this rank, sends and receives among them

 private:
  void check_stages() const;
  void check_tied() const;
  void check_tags() const;
};

}  // namespace c10d::inline v0::parallel
