// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/model/cases.h"
#include "bench/model/job_record.h"

namespace c10d::bench {

// A flight record as a list of ops that all ranks run in the same order.

// When one rank was in an op; seconds.
struct Span {
  double start = 0;
  double end = 0;
};

struct ReplayOp {
  std::size_t group = 0;  // of ReplayPlan::groups
  RecordedOp call;        // as rank 0 recorded it
  Case as_case;           // what the benchmark runs for it
  // Started, and waited for before the op `joined_before`, because another op started before this
  // one had ended on some rank. Without one the op blocks.
  std::optional<std::size_t> joined_before;
  std::size_t slot = 0;     // whose buffers it takes: no other op in flight has them
  std::vector<Span> spans;  // by rank, as recorded
  // By rank, seconds: what the caller spent since it left the recorded op before this one, or,
  // where that one was in flight still, since it started it.
  std::vector<double> gaps;
};

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

// From the last rank's start of an op to the last rank's end of it: what an op takes where no rank
// waits for another one to come.
Span common_span(std::span<const Span> of_ranks);
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
