// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/parallel/common/throw_invalid.h"
#include "src/parallel/pipeline/schedule_graph.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

using enum ActionKind;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kMaxColumns = 240;

double cost_of(ActionKind kind, const Costs& costs) {
  switch (kind) {
    case forward:
      return costs.forward;
    case backward:
      return costs.input + costs.weight;
    case backward_input:
      return costs.input;
    case backward_weight:
      return costs.weight;
    default:
      return 0;
  }
}

// Runs the rows side by side, as far as each can go.
class SchedulePlayer {
 public:
  SchedulePlayer(const Schedule& lowered, const ScheduleFacts& facts, const StageGraph& graph,
                 const Costs& costs)
      : rows_(lowered.ranks),
        facts_(facts),
        graph_(graph),
        costs_(costs),
        ends_(facts.rank_of_stage.size(), static_cast<std::size_t>(facts.micro_batches), kNever),
        played_(rows_.size()) {}

  std::vector<std::vector<Slot>> run() {
    std::size_t left = 0;
    for (const auto& row : rows_) left += row.size();
    while (left > 0) {
      const std::size_t before = left;
      for (std::size_t rank = 0; rank < rows_.size(); ++rank)
        while (played_[rank].size() < rows_[rank].size() && advance(rank)) --left;
      if (left == before) refuse();
    }
    return std::move(played_);
  }

 private:
  bool advance(std::size_t rank) {
    const Action& action = rows_[rank][played_[rank].size()];
    const double ready = ready_at(action);
    if (ready == kNever) return false;
    const double free = played_[rank].empty() ? 0 : played_[rank].back().end;
    // A receive takes the time that the rank waits; what it waits for is then there.
    const bool receives = action.kind == recv_f || action.kind == recv_b;
    const double begin = receives ? free : std::max(free, ready);
    const double end = std::max(begin + cost_of(action.kind, costs_), ready);
    played_[rank].push_back({action, begin, end});
    ends_[action] = end;
    if (action.kind == backward) {
      ends_[{action.stage, backward_input, action.micro_batch}] = end;
      ends_[{action.stage, backward_weight, action.micro_batch}] = end;
    }
    return true;
  }

  // When all that the action waits for is there. On kNever, missing_ is something that is not.
  double ready_at(const Action& action) {
    ready_ = 0;
    const int stage = action.stage, i = action.micro_batch;
    switch (action.kind) {
      case forward:
        for (const int index : graph_.into(stage))
          await(here(stage, graph_.edge(index).from) ? Action{graph_.edge(index).from, forward, i}
                                                     : Action{stage, recv_f, i});
        break;
      case backward:
      case backward_input:
        await({stage, forward, i});
        for (const int index : graph_.out_of(stage))
          await(here(stage, graph_.edge(index).to)
                    ? Action{graph_.edge(index).to, backward_input, i}
                    : Action{stage, recv_b, i});
        break;
      case backward_weight:
      case send_b:
        await({stage, backward_input, i});
        break;
      case send_f:
        await({stage, forward, i});
        break;
      case recv_f:
        for (const int index : graph_.into(stage))
          await_from(stage, {graph_.edge(index).from, send_f, i});
        break;
      case recv_b:
        for (const int index : graph_.out_of(stage))
          await_from(stage, {graph_.edge(index).to, send_b, i});
        break;
      case reduce_grad:
        for (int each = 0; each < facts_.micro_batches; ++each)
          await({stage, backward_weight, each});
        break;
      case unshard:
      case reshard:
        break;
    }
    return ready_;
  }

  bool here(int stage, int other) const {
    return facts_.rank_of_stage[static_cast<std::size_t>(stage)] ==
           facts_.rank_of_stage[static_cast<std::size_t>(other)];
  }

  void await(const Action& before, double delay = 0) {
    const double end = ends_[before];
    if (end == kNever && ready_ != kNever) missing_ = before;
    ready_ = std::max(ready_, end + delay);
  }

  void await_from(int stage, const Action& send) {
    if (!here(stage, send.stage)) await(send, costs_.communication);
  }

  [[noreturn]] void refuse() {
    std::string stuck;
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      if (played_[rank].size() == rows_[rank].size()) continue;
      const Action& action = rows_[rank][played_[rank].size()];
      ready_at(action);
      if (stuck.size() > 500) {
        stuck += ", ...";
        break;
      }
      stuck += fmt::format("{}rank {} has {}, which waits for {}", stuck.empty() ? "" : ", ", rank,
                           to_string(action), to_string(missing_));
    }
    throw_invalid("schedule: deadlock: {}", stuck);
  }

  const std::vector<std::vector<Action>>& rows_;
  const ScheduleFacts& facts_;
  const StageGraph& graph_;
  const Costs& costs_;
  ActionTable<double> ends_;
  std::vector<std::vector<Slot>> played_;
  double ready_ = 0;
  Action missing_;
};

// The time of one column: that of the shortest action, unless the line gets too long.
double column_time(const Simulation& simulation) {
  double shortest = kNever;
  for (const auto& row : simulation.ranks)
    for (const Slot& slot : row)
      if (computes(slot.action.kind) && slot.end > slot.begin)
        shortest = std::min(shortest, slot.end - slot.begin);
  return std::max(shortest, simulation.makespan / kMaxColumns);
}

std::string timeline_of(const std::vector<Slot>& row, double column, std::size_t columns,
                        std::size_t width) {
  std::vector<std::string> cells(columns, ".");
  for (const Slot& slot : row) {
    if (!computes(slot.action.kind)) continue;
    const auto first = static_cast<std::size_t>(std::lround(slot.begin / column));
    const auto last = static_cast<std::size_t>(std::lround(slot.end / column));
    for (std::size_t i = first; i < std::min(last, columns); ++i)
      cells[i] = i == first ? to_string(slot.action) : "-";
  }
  std::string line;
  for (const std::string& cell : cells) line += fmt::format(" {:<{}}", cell, width);
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::vector<std::vector<Slot>> play(const Schedule& lowered, const ScheduleFacts& facts,
                                    const StageGraph& graph, const Costs& costs) {
  return SchedulePlayer(lowered, facts, graph, costs).run();
}

Simulation simulate(const Schedule& schedule, const Costs& costs, std::span<const Skip> skips) {
  for (const double cost : {costs.forward, costs.input, costs.weight, costs.communication})
    if (!(cost >= 0 && cost < kNever))
      throw_invalid("simulate: a cost of {} is not valid; give a finite number from 0 on", cost);
  Simulation simulation;
  simulation.facts = validate(schedule, skips);
  const StageGraph graph(static_cast<int>(simulation.facts.rank_of_stage.size()), skips);
  simulation.ranks = play(lower(schedule, skips), simulation.facts, graph, costs);
  double busy = 0;
  for (const auto& row : simulation.ranks) {
    if (!row.empty()) simulation.makespan = std::max(simulation.makespan, row.back().end);
    for (const Slot& slot : row) busy += cost_of(slot.action.kind, costs);
  }
  const double all = simulation.makespan * static_cast<double>(simulation.ranks.size());
  simulation.bubble = all > 0 ? 1 - busy / all : 0;
  return simulation;
}

std::string to_text(const Simulation& simulation) {
  std::string text;
  const double column = column_time(simulation);
  if (column < kNever && column > 0) {
    const auto columns = static_cast<std::size_t>(std::lround(simulation.makespan / column));
    std::size_t width = 1;
    for (const auto& row : simulation.ranks)
      for (const Slot& slot : row)
        if (computes(slot.action.kind)) width = std::max(width, to_string(slot.action).size());
    for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank)
      text += fmt::format("rank {:<3}{}\n", rank,
                          timeline_of(simulation.ranks[rank], column, columns, width));
  }
  text += fmt::format("makespan {:g}, bubble {:.1f} %, peak activations", simulation.makespan,
                      100 * simulation.bubble);
  for (const int peak : simulation.facts.peak_activations) text += fmt::format(" {}", peak);
  return text + "\n";
}

}}}  // namespace c10d::v0::parallel
