// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/parallel/common/throw_invalid.h"
#include "src/parallel/pipeline/schedule_graph.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

using enum ActionKind;

template <class... Values>
[[noreturn]] void refuse_schedule(fmt::format_string<Values...> what, Values&&... values) {
  throw_invalid("schedule: {}", fmt::format(what, std::forward<Values>(values)...));
}

// The extent of a schedule, and where its stages live.
ScheduleFacts survey_schedule(const Schedule& schedule) {
  int stages = 0, micro_batches = 0;
  for (const auto& row : schedule.ranks)
    for (const Action& action : row) {
      if (static_cast<int>(action.kind) >= kActionKinds)
        refuse_schedule("an action of kind {}, which does not exist",
                        static_cast<int>(action.kind));
      if (action.stage < 0 || has_micro_batch(action.kind) != (action.micro_batch >= 0))
        refuse_schedule("{} is malformed: check its stage and its micro-batch", to_string(action));
      stages = std::max(stages, action.stage + 1);
      micro_batches = std::max(micro_batches, action.micro_batch + 1);
    }
  check_extent(static_cast<std::size_t>(stages), static_cast<std::size_t>(micro_batches));
  ScheduleFacts facts{.rank_of_stage = std::vector<int>(static_cast<std::size_t>(stages), -1),
                      .micro_batches = micro_batches,
                      .trains = false,
                      .peak_activations = {}};
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const Action& action : schedule.ranks[rank]) {
      int& home = facts.rank_of_stage[static_cast<std::size_t>(action.stage)];
      if (home < 0) home = static_cast<int>(rank);
      if (home != static_cast<int>(rank))
        refuse_schedule("{} is on rank {}, but stage {} belongs to rank {}", to_string(action),
                        rank, action.stage, home);
      facts.trains |= is_backward(action.kind);
    }
  return facts;
}

// Counts every action, then asks for those that must be there.
class ActionCensus {
 public:
  ActionCensus(const Schedule& schedule, const ScheduleFacts& facts, const StageGraph& graph)
      : facts_(facts),
        graph_(graph),
        stages_(static_cast<int>(facts.rank_of_stage.size())),
        seen_(facts.rank_of_stage.size(), static_cast<std::size_t>(facts.micro_batches), false) {
    for (const auto& row : schedule.ranks)
      for (const Action& action : row) {
        lowered_ |= communicates(action.kind);
        if (action.kind == unshard || action.kind == reshard) continue;
        if (std::exchange(seen_[action], true))
          refuse_schedule("{} comes twice", to_string(action));
      }
  }

  void check() {
    for (int stage = 0; stage < stages_; ++stage)
      for (int i = 0; i < facts_.micro_batches; ++i) {
        want({stage, forward, i}, true);
        check_backward(stage, i);
        for (const ActionKind kind : {send_f, recv_f, send_b, recv_b})
          check_message({stage, kind, i});
      }
  }

 private:
  void want(const Action& action, bool wanted) {
    if (seen_[action] == wanted) return;
    refuse_schedule("{} {}", to_string(action), wanted ? "is missing" : "is not expected here");
  }

  void check_backward(int stage, int i) {
    const bool whole = seen_[{stage, backward, i}];
    const bool input = seen_[{stage, backward_input, i}];
    const bool weight = seen_[{stage, backward_weight, i}];
    if (whole && (input || weight))
      refuse_schedule("{} and {} do the same work", to_string({stage, backward, i}),
                      to_string({stage, input ? backward_input : backward_weight, i}));
    if (!facts_.trains || whole) return;
    if (!input && !weight)
      refuse_schedule("{} is missing (or {} and {})", to_string({stage, backward, i}),
                      to_string({stage, backward_input, i}),
                      to_string({stage, backward_weight, i}));
    want({stage, backward_input, i}, true);
    want({stage, backward_weight, i}, true);
  }

  void check_message(const Action& action) {
    const bool backwards = action.kind == send_b || action.kind == recv_b;
    want(action, lowered_ && (facts_.trains || !backwards) &&
                     crosses_ranks(action, graph_, facts_.rank_of_stage));
  }

  const ScheduleFacts& facts_;
  const StageGraph& graph_;
  const int stages_;
  bool lowered_ = false;
  ActionTable<char> seen_;
};

void check_weight_order(const Schedule& schedule, std::size_t stages) {
  std::vector<int> next(stages, 0);
  for (const auto& row : schedule.ranks)
    for (const Action& action : row) {
      if (action.kind != backward && action.kind != backward_weight) continue;
      int& expected = next[static_cast<std::size_t>(action.stage)];
      if (action.micro_batch != expected)
        refuse_schedule(
            "{} comes where the weight gradient of micro-batch {} is due: stage {} "
            "must take them in order",
            to_string(action), expected, action.stage);
      ++expected;
    }
}

std::vector<int> count_activations(const Schedule& schedule, bool trains, std::optional<int> most) {
  std::vector<int> peaks;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Action>& row = schedule.ranks[rank];
    int live = 0, peak = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind == forward) peak = std::max(peak, trains ? ++live : 1);
      if (row[i].kind == backward || row[i].kind == backward_weight) --live;
      if (most && peak > *most)
        refuse_schedule(
            "{}, action {} of rank {}, is the forward of stage {} with which the rank "
            "holds {} activations; at most {} fit",
            to_string(row[i]), i, rank, row[i].stage, peak, *most);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

Schedule with_messages(const Schedule& schedule, const ScheduleFacts& facts,
                       const StageGraph& graph) {
  Schedule lowered;
  for (const auto& row : schedule.ranks) {
    std::vector<Action>& actions = lowered.ranks.emplace_back();
    const auto add = [&](Action action, ActionKind kind) {
      action.kind = kind;
      if (crosses_ranks(action, graph, facts.rank_of_stage)) actions.push_back(action);
    };
    for (const Action& action : row) {
      const bool gives_gradient = action.kind == backward || action.kind == backward_input;
      if (action.kind == forward) add(action, recv_f);
      if (gives_gradient) add(action, recv_b);
      actions.push_back(action);
      if (action.kind == forward) add(action, send_f);
      if (gives_gradient) add(action, send_b);
    }
  }
  return lowered;
}

bool is_lowered(const Schedule& schedule) {
  return std::ranges::any_of(schedule.ranks, [](const std::vector<Action>& row) {
    return std::ranges::any_of(row, [](const Action& action) { return communicates(action.kind); });
  });
}

}  // namespace

ScheduleFacts validate(const Schedule& schedule, std::span<const Skip> skips,
                       std::optional<int> max_live_activations) {
  ScheduleFacts facts = survey_schedule(schedule);
  const StageGraph graph(static_cast<int>(facts.rank_of_stage.size()), skips);
  ActionCensus(schedule, facts, graph).check();
  check_weight_order(schedule, facts.rank_of_stage.size());
  play(lower(schedule, skips), facts, graph, {});
  facts.peak_activations = count_activations(schedule, facts.trains, max_live_activations);
  return facts;
}

Schedule lower(const Schedule& schedule, std::span<const Skip> skips) {
  if (is_lowered(schedule)) return schedule;
  const ScheduleFacts facts = survey_schedule(schedule);
  return with_messages(schedule, facts,
                       StageGraph(static_cast<int>(facts.rank_of_stage.size()), skips));
}

Schedule forward_only(const Schedule& schedule) {
  Schedule forwards;
  for (const auto& row : schedule.ranks) {
    std::vector<Action>& actions = forwards.ranks.emplace_back();
    std::ranges::copy_if(row, std::back_inserter(actions), [](const Action& action) {
      return action.kind == forward || action.kind == send_f || action.kind == recv_f ||
             action.kind == unshard || action.kind == reshard;
    });
  }
  return forwards;
}

}}}  // namespace c10d::v0::parallel
