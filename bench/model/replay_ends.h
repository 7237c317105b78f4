// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/model/job_record.h"
#include "bench/model/replay_op.h"

namespace c10d::bench {

// What a plan is made of: the ends of messages, and the order of all ops.

inline constexpr double kClockError = 2e-6;  // seconds: what two threads' readings may differ by

// One rank's collectives, or messages, that ended well, by sequence. The record of a job that runs
// may begin with ops that are newer than what follows, or half of them: its ring was read while it
// was written.
using BySequence = std::map<std::uint64_t, const RecordedOp*>;

BySequence finished_of(const RecordedRank& rank, bool messages);

// Both ends of the messages of which the record has both; it may lack the first and the last ones.
// They are numbered from `number` + 1 on. Nothing, and why in `why`, where they cannot be matched.
std::vector<ReplayOp> messages_of(const RecordedGroup& group, std::uint64_t& number,
                                  std::string& why);

// Puts the ops of all groups into one order that has each rank's own in theirs, the same one
// whenever the ranks do the same: what is sent is received as soon as that is next on its rank, and
// lower ranks go first. Where ranks came to collectives in different orders, that of their times.
std::vector<ReplayOp> in_one_order(std::vector<ReplayOp> ops, int ranks);

}  // namespace c10d::bench
