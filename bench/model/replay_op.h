// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "bench/model/cases.h"
#include "bench/model/job_record.h"

namespace c10d::bench {

// When one rank was in an op; seconds.
struct Span {
  double start = 0;
  double end = 0;
};

inline constexpr Span kAbsent{-std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()};

// When the program had what an op sends, where it said so: CallOptions::ready_at. Seconds.
struct Due {
  double at = 0;      // since the step began, which is when the rank left the op before
  double beside = 0;  // of this, while ops of this rank ran
  double late = 0;    // from then, or from the end of the op before, to the start of the op
};

// A call of all ranks, or one end of a message.
struct ReplayOp {
  std::size_t group = 0;  // of ReplayPlan::groups
  RecordedOp call;        // as rank 0 recorded it
  Case as_case;           // what the benchmark runs for it
  // Started, and waited for before the op `joined_before`, because another op started before this
  // one had ended on some rank. Without one the op blocks.
  std::optional<std::size_t> joined_before;
  std::uint64_t message = 0;  // the same for both ends of one; 0: a collective
  std::size_t slot = 0;       // whose buffers it takes: no other op in flight has them
  // By rank, as recorded; kAbsent where the rank has no part. A recv has that of the sender too.
  std::vector<Span> spans;
  std::vector<std::optional<double>> ready;  // by rank, as recorded
  // By rank, seconds: what the caller spent since it left the recorded op before this one, or,
  // where that one was in flight still, since it started it.
  std::vector<double> gaps;
  std::vector<std::optional<Due>> due;  // by rank
};

// Whether the rank makes the call.
bool takes_part(const ReplayOp& op, std::size_t rank) noexcept;

// From the last rank's start of an op to the last rank's end of it: what an op takes where no rank
// waits for another one to come.
Span common_span(std::span<const Span> of_ranks);
}  // namespace c10d::bench
