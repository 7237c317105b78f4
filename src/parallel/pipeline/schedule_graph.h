// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "c10d/parallel/schedule.h"

namespace c10d { inline namespace v0 { namespace parallel {

inline constexpr int kActionKinds = 11;
inline constexpr int kMaxStages = 4096;
inline constexpr int kMaxMicroBatches = 65536;
// Stages times micro-batches: bounds every table.
inline constexpr std::size_t kMaxCells = std::size_t{1} << 20;

constexpr bool has_micro_batch(ActionKind kind) noexcept {
  return kind != ActionKind::unshard && kind != ActionKind::reshard &&
         kind != ActionKind::reduce_grad;
}
constexpr bool communicates(ActionKind kind) noexcept { return kind >= ActionKind::send_f; }
constexpr bool is_backward(ActionKind kind) noexcept {
  return kind == ActionKind::backward || kind == ActionKind::backward_input ||
         kind == ActionKind::backward_weight;
}
constexpr bool computes(ActionKind kind) noexcept {
  return kind == ActionKind::forward || is_backward(kind);
}

// Throws InvalidArgument unless both are positive and within the limits.
void check_extent(std::size_t stages, std::size_t micro_batches);

// Which stage feeds which: the chain and the skips, as one list of edges sorted by (from, to).
class StageGraph {
 public:
  // Throws InvalidArgument for a skip that is out of range, repeated, or part of the chain.
  StageGraph(int stages, std::span<const Skip> skips);

  const std::vector<Skip>& edges() const noexcept { return edges_; }
  // Indices of edges, in the order in which callbacks see inputs and outputs.
  std::span<const int> into(int stage) const noexcept {
    return into_[static_cast<std::size_t>(stage)];
  }
  std::span<const int> out_of(int stage) const noexcept {
    return out_of_[static_cast<std::size_t>(stage)];
  }
  const Skip& edge(int index) const noexcept { return edges_[static_cast<std::size_t>(index)]; }

 private:
  std::vector<Skip> edges_;
  std::vector<std::vector<int>> into_, out_of_;
};

// Whether the action moves data between ranks; SEND and RECV only.
bool crosses_ranks(const Action& action, const StageGraph& graph,
                   std::span<const int> rank_of_stage);

// A cell per kind, stage and micro-batch.
template <class T>
class ActionTable {
 public:
  ActionTable(std::size_t stages, std::size_t micro_batches, T initial)
      : micro_batches_(micro_batches), cells_(kActionKinds * stages * micro_batches, initial) {}

  T& operator[](const Action& action) {
    const std::size_t micro_batch =
        action.micro_batch < 0 ? 0 : static_cast<std::size_t>(action.micro_batch);
    const std::size_t row = static_cast<std::size_t>(action.stage) * kActionKinds +
                            static_cast<std::size_t>(action.kind);
    return cells_[row * micro_batches_ + micro_batch];
  }

 private:
  std::size_t micro_batches_;
  std::vector<T> cells_;
};

// When each action of a lowered schedule runs. Throws InvalidArgument when one waits for ever.
std::vector<std::vector<Slot>> play(const Schedule& lowered, const ScheduleFacts& facts,
                                    const StageGraph& graph, const Costs& costs);

}}}  // namespace c10d::v0::parallel
