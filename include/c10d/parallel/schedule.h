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

// Pipeline schedules as data: generate or parse one, validate() and simulate() it, execute it with
// pipeline.h. Everything here is local and throws InvalidArgument, which names the action that is
// wrong.
namespace c10d { inline namespace v0 { namespace parallel {

// What an Action does. The comments show how it is written.
enum class ActionKind : std::uint8_t {
  forward,          // F
  backward,         // B: backward_input, then backward_weight
  backward_input,   // I
  backward_weight,  // W
  unshard,          // UNSHARD: of a stage, without a micro-batch
  reshard,          // RESHARD: likewise
  reduce_grad,      // REDUCE_GRAD: likewise
  send_f,           // SEND_F: the outputs of forward, to the stages on other ranks
  recv_f,           // RECV_F: the inputs of forward, from the stages on other ranks
  send_b,           // SEND_B: the gradients of backward_input, to the stages on other ranks
  recv_b            // RECV_B: the gradients for backward_input, from the stages on other ranks
};

// One action of a rank: "2F0" is the forward of stage 2 for micro-batch 0, "1SEND_B3" sends the
// gradients of micro-batch 3 from stage 1, "0REDUCE_GRAD" is for the whole stage 0.
struct Action {
  int stage = 0;                          // of which stage
  ActionKind kind = ActionKind::forward;  // what it does
  int micro_batch = -1;                   // for which micro-batch; -1: none

  bool operator==(const Action&) const = default;  // compares all fields
};

// The text of an action: "2F0".
C10D_API std::string to_string(const Action& action);
// The action of a text.
C10D_API Action action_from_string(std::string_view text);

// The actions of every rank. A stage is on the rank that has its actions. Sends and receives may be
// left out: see lower().
struct Schedule {
  std::vector<std::vector<Action>> ranks;  // the actions of each rank, in order

  bool operator==(const Schedule&) const = default;  // compares all fields
};

// Parses a schedule: one line per rank, actions separated by commas. Empty cells mean nothing;
// "(0F1;1B0)OVERLAP_F_B" is read as its parts, in order. At most 4,096 stages and 65,536
// micro-batches. Errors name row, column and text.
C10D_API Schedule parse_schedule(std::string_view csv);
// The text of a schedule, for parse_schedule().
C10D_API std::string to_csv(const Schedule& schedule);

// The names that make_schedule() knows.
C10D_API std::vector<std::string_view> schedule_names();
// Generates a schedule by name. `chunks` is the number of stages per rank.
// - gpipe: all forwards, then all backwards;
// - 1f1b: each backward as soon as possible; one chunk;
// - interleaved: 1f1b with several chunks; micro_batches is a multiple of ranks, or less than that;
// - zb-h1: backward in two halves, weight gradients fill the gaps; one chunk;
// - zb-v: the same with two chunks, placed as a V: stages s and 2 ranks - 1 - s on one rank.
//
// In all but zb-v, stage s is on rank s % ranks.
C10D_API Schedule make_schedule(std::string_view name, int ranks, int micro_batches,
                                int chunks = 1);

// The forwards of a schedule alone: for evaluation, with the stages on the same ranks.
C10D_API Schedule forward_only(const Schedule& schedule);

// A skip connection: an output of stage `from` that is an input of stage `to`, besides the one to
// stage from + 1.
struct Skip {
  int from = 0;  // at least 0
  int to = 0;    // more than from + 1

  bool operator==(const Skip&) const = default;  // compares all fields
};

// What validate() finds out about a schedule.
struct ScheduleFacts {
  std::vector<int> rank_of_stage;  // by stage
  int micro_batches = 0;           // number of micro-batches
  bool trains = false;             // whether it has backwards
  // For each rank, the most activations that it holds at a time: micro-batches that have begun
  // forward and not ended backward_weight, summed over its stages.
  std::vector<int> peak_activations;
};

// Checks a schedule. Throws InvalidArgument unless
// - every stage is on one rank;
// - every stage runs every micro-batch once: forward, and backward unless no stage has backwards;
// - every stage computes its weight gradients in the order of the micro-batches, so that they are
//   added in one order whatever the schedule;
// - sends and receives are complete, or all left out;
// - no action waits for one that never comes;
// - no rank holds more activations at a time than `max_live_activations`.
C10D_API ScheduleFacts validate(const Schedule& schedule, std::span<const Skip> skips = {},
                                std::optional<int> max_live_activations = {});

// Adds sends and receives: each send right after the action that computes what it sends, each
// receive right before the action that needs it. A schedule that has them is returned as it is.
C10D_API Schedule lower(const Schedule& schedule, std::span<const Skip> skips = {});

// How long actions take, in any unit of time; none is negative. backward takes input + weight.
struct Costs {
  double forward = 1;        // of forward
  double input = 1;          // of backward_input
  double weight = 1;         // of backward_weight
  double communication = 0;  // from the end of a send to the end of its receive; no rank is busy
};

// When an action runs.
struct Slot {
  Action action;     // which action
  double begin = 0;  // when it begins
  double end = 0;    // when it ends
};

// How a schedule runs, in the unit of Costs.
struct Simulation {
  std::vector<std::vector<Slot>> ranks;  // of the schedule with sends and receives, in its order
  double makespan = 0;                   // time from the first action to the end of the last
  double bubble = 0;    // part of ranks * makespan, from 0 to 1, in which no F, B, I or W runs
  ScheduleFacts facts;  // of validate()
};

// Computes when each action of a schedule runs if it takes as long as `costs` says. Throws as
// validate().
C10D_API Simulation simulate(const Schedule& schedule, const Costs& costs = {},
                             std::span<const Skip> skips = {});

// Draws a simulation as text: a line per rank with its F, B, I and W along time, then makespan,
// bubble and peak activations.
C10D_API std::string to_text(const Simulation& simulation);

}}}  // namespace c10d::v0::parallel
