// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/model/job_record.h"
#include "bench/model/replay_op.h"

namespace c10d::bench {

// A flight record as a list of ops that all ranks run in the same order.

struct ReplayPlan {
  int ranks = 0;
  std::vector<std::string> groups;  // names
  std::vector<ReplayOp> ops;        // of whole steps only
  std::vector<Case> slots;          // with steps: an entry for each op of a step
  std::size_t ops_per_step = 0;     // divides ops.size()
  bool has_steps = false;           // else all ops are one step
  std::vector<std::string> notes;   // what of the record is left out, and why
  std::size_t steps() const noexcept { return ops_per_step == 0 ? 0 : ops.size() / ops_per_step; }
};

// Aligns the ranks by the sequences of their ops. Throws InvalidArgument: a rank is missing, ranks
// recorded different calls, they are on several hosts, or no op is left to be run. `ops_per_step`
// is 0 where the steps are to be found.
ReplayPlan plan_replay(const JobRecord& record, Place place, std::size_t ops_per_step = 0);
// The plan of its last `steps` steps.
ReplayPlan last_steps(ReplayPlan plan, std::size_t steps);

// CPU seconds that the program had computed in this step when it had what the op at `index` sends,
// if it computes `seconds` in a step: all the time while no op ran, and while one did as great a
// part of the time as makes the sum. Nothing where the program did not say when.
std::optional<double> computed_before(const ReplayPlan& plan, std::size_t index, std::size_t rank,
                                      double seconds);
// The seconds that at least one of the spans covers.
double covered(std::vector<Span> spans);
// Communication time of each step of the plan: covered() over the common spans of its ops.
// `spans[op][rank]` are those of a replay, or those of the record.
std::vector<double> communication_by_step(const ReplayPlan& plan,
                                          std::span<const std::vector<Span>> spans);
std::vector<std::vector<Span>> recorded_spans(const ReplayPlan& plan);

// A step of a list of calls: [first, first + period), which comes again and again.
struct Repetition {
  std::size_t period = 0;  // 0: there is none
  std::size_t first = 0;
  std::size_t count = 0;  // of the calls from `first` on that repeat without a break
};
// The smallest period of which there are three in a row, and that leaves out few of the calls
// between the first and the last step: an epoch may end with a call of its own. `wanted` is the
// period, where that is known.
Repetition find_repetition(std::span<const std::uint64_t> calls, std::size_t wanted = 0);
// Where whole steps begin that are the calls [first, first + period).
std::vector<std::size_t> find_steps(std::span<const std::uint64_t> calls, std::size_t first,
                                    std::size_t period);

}  // namespace c10d::bench
