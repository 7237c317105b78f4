// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/export.h"

// Pipeline schedules as data: generated or read from text, checked, simulated, then executed by
// pipeline.h. Everything here is local and throws InvalidArgument, which names the action.
namespace c10d { inline namespace v0 { namespace parallel {

enum class ActionKind : std::uint8_t {
  forward,          // F
  backward,         // B: backward_input, then backward_weight
  backward_input,   // I
  backward_weight,  // W
  unshard,          // UNSHARD, RESHARD, REDUCE_GRAD: of a stage, without a micro-batch
  reshard,
  reduce_grad,
  send_f,  // SEND_F: the outputs of forward, to the stages that live on other ranks
  recv_f,
  send_b,  // SEND_B: the gradients of backward_input, likewise
  recv_b
};

// What a rank does next: "2F0" is the forward of stage 2 for micro-batch 0, "1SEND_B3" sends the
// gradients of micro-batch 3 from stage 1, "0REDUCE_GRAD" is for the whole stage.
struct Action {
  int stage = 0;
  ActionKind kind = ActionKind::forward;
  int micro_batch = -1;  // -1: none

  bool operator==(const Action&) const = default;
};

C10D_API std::string to_string(const Action& action);
C10D_API Action action_from_string(std::string_view text);

// The actions of each rank, in order. Stages are placed by it: a stage lives where its actions are.
// SEND and RECV may be left out: see lower().
struct Schedule {
  std::vector<std::vector<Action>> ranks;

  bool operator==(const Schedule&) const = default;
};

// One line per rank, actions between commas. Empty cells mean nothing; "(0F1;1B0)OVERLAP_F_B" is
// read as its parts in order. Errors name row, column and text. At most 4,096 stages and 65,536
// micro-batches.
C10D_API Schedule parse_schedule(std::string_view csv);
C10D_API std::string to_csv(const Schedule& schedule);

//   gpipe        all forwards, then all backwards
//   1f1b         backwards as soon as they can; one chunk
//   interleaved  1f1b over `chunks` stages per rank; micro_batches a multiple of ranks, or fewer
//   zb-h1        backward in two, weight gradients fill the gaps; one chunk
//   zb-v         the same over two chunks, placed as a V: stage s and 2 ranks - 1 - s together
// Otherwise stage s lives on rank s % ranks. `chunks` is the number of stages per rank.
C10D_API std::vector<std::string_view> schedule_names();
C10D_API Schedule make_schedule(std::string_view name, int ranks, int micro_batches,
                                int chunks = 1);

// The forwards alone: for evaluation with the stages where they are.
C10D_API Schedule forward_only(const Schedule& schedule);

// An output of stage `from` that goes to stage `to` besides the one to stage from + 1.
// 0 <= from, from + 1 < to.
struct Skip {
  int from = 0;
  int to = 0;

  bool operator==(const Skip&) const = default;
};

struct ScheduleFacts {
  std::vector<int> rank_of_stage;
  int micro_batches = 0;
  bool trains = false;                // has backwards
  std::vector<int> peak_activations;  // per rank: most micro-batches between F and the end of W,
                                      // summed over its stages
};

// Checks that every stage lives on one rank; that it runs every micro-batch once, forward and
// (unless no stage does) backward; that its weight gradients come in micro-batch order, so that
// they add up in one order whatever the schedule; that sends and receives are all there or all left
// out; that no action waits for one that never comes; and that no rank ever holds more activations,
// as peak_activations counts them, than `most_activations`.
C10D_API ScheduleFacts validate(const Schedule& schedule, std::span<const Skip> skips = {},
                                std::optional<int> most_activations = {});

// With its sends right after the actions that they wait for and its receives right before the
// actions that wait for them. A schedule that has them comes back as it is.
C10D_API Schedule lower(const Schedule& schedule, std::span<const Skip> skips = {});

// In any unit of time; >= 0. B costs input + weight. Communication passes between the end of the
// send and the end of its receive and keeps no rank busy.
struct Costs {
  double forward = 1;
  double input = 1;
  double weight = 1;
  double communication = 0;
};

struct Slot {
  Action action;
  double begin = 0;
  double end = 0;
};

struct Simulation {
  std::vector<std::vector<Slot>> ranks;  // of the lowered schedule, in its order
  double makespan = 0;
  double bubble = 0;  // the part of ranks * makespan in which no F, B, I or W runs
  ScheduleFacts facts;
};

C10D_API Simulation simulate(const Schedule& schedule, const Costs& costs = {},
                             std::span<const Skip> skips = {});

// A line per rank with the F, B, I and W along time, then makespan, bubble and peak activations.
C10D_API std::string to_text(const Simulation& simulation);

}}}  // namespace c10d::v0::parallel
