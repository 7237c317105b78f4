// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tests/chaos/board.h"

namespace c10d::chaos {

// A promise that was not kept.
struct Finding {
  std::string kind;  // one word
  std::string text;
};

// What the driver knows beside the board.
struct Ends {
  std::array<bool, kMaxRanks> gone{};        // the process has ended
  std::array<std::string, kMaxRanks> how{};  // "signal 11", "exit 1"
  bool launcher_ends_all = false;            // mpirun, after a death
  // What a wrapped library keeps until the process ends (docs/limits.md): MPI, where a call was
  // held in it, all that it worked on; Gloo the connections of a group that did not form.
  bool keeps_all = false, keeps_failed_joins = false;
};

// How long a thing may take on a machine that does others beside it.
struct Bounds {
  double patience = 1;
  std::int64_t late_ns() const { return static_cast<std::int64_t>(5e9 * patience); }
};

std::vector<Finding> judge(const Plan& plan, const Board& board, const Ends& ends,
                           const Bounds& bounds);

// Where every rank is, for people.
std::string places(const Plan& plan, const Board& board);

}  // namespace c10d::chaos
