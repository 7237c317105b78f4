// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "c10d/process_group.h"

namespace c10d::fault {

// One row of the matrix: all ranks make one call, but one makes another.
struct MismatchRow {
  OpKind kind;
  std::string differs;  // op, dtype, reduce_op, root or count
  int odd = 0;          // the rank that does
};

inline constexpr int kMismatchRanks = 3;

// Every collective, and all in which two calls of it may differ.
std::vector<MismatchRow> mismatch_rows();

// Makes this rank's call of the row in a fresh group and says how it ended:
// "<op> <differs> <code> <milliseconds> <part>|<other part>|<message>"; both parts must be in the
// message. Both are empty where the backend cannot make one of the calls: then the message is why.
std::string call_mismatched(ProcessGroup& world, const MismatchRow& row);

// In fresh groups, `rounds` times: rank 0 makes another call than the others, which have more calls
// queued behind theirs. In how many rounds every call of this rank was a mismatch.
int call_mismatched_with_more_queued(ProcessGroup& world, int rounds);

}  // namespace c10d::fault
