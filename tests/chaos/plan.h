// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/collective.h"
#include "tests/conformance/cases.h"

namespace c10d::chaos {

using conformance::Case;
using conformance::Exchange;

inline constexpr int kMaxRanks = 5;
inline constexpr int kMaxSteps = 48;
inline constexpr int kMaxGroups = 16;
inline constexpr int kWorld = 0;  // the first group

// Members of a group as ranks of the world, in the group's order.
struct GroupPlan {
  int parent = -1;
  std::vector<int> members;
  // The rank in this group, or -1.
  int rank_of(int world_rank) const;
  int size() const { return static_cast<int>(members.size()); }
};

enum class StepKind : std::uint8_t {
  call,      // what `call` says
  form,      // new_group
  split,     // one group per color
  allocate,  // memory for the calls that follow
  monitored_barrier,
  drain,  // waits for the async calls of the group
  leave   // shutdown() of the group, on all its members
};

// What the members of one group do together.
struct Step {
  StepKind kind = StepKind::call;
  int group = kWorld;
  Case call{};
  std::vector<int> made;    // form: one group; split: all of them
  std::vector<int> colors;  // of the ranks of the group; -1: none
  std::size_t bytes = 0;
};

// What one rank does that the others do not.
enum class Deviation : std::uint8_t {
  none,
  other_op,
  other_dtype,
  other_count,
  other_root,
  other_reduce_op,
  skip,   // leaves a step out
  add,    // makes one more call
  swap,   // makes two calls in the other order
  kill,   // SIGKILL
  stop,   // SIGSTOP; goes on once the others have ended
  exit0,  // _exit(0)
  exec,   // becomes another program
  leave,  // an exception: its groups are destroyed in order
  abort,  // abort() from another thread
  mute    // nobody reads its stdout any more, which is no failure
};
inline constexpr int kDeviationCount = static_cast<int>(Deviation::mute) + 1;
std::string_view to_string(Deviation deviation) noexcept;

// One rank makes another call than the others.
constexpr bool is_other_call(Deviation d) noexcept {
  return d >= Deviation::other_op && d <= Deviation::other_reduce_op;
}
constexpr bool is_other_order(Deviation d) noexcept {
  return d >= Deviation::skip && d <= Deviation::swap;
}
// The process is gone, or another one.
constexpr bool is_death(Deviation d) noexcept {
  return d == Deviation::kill || d == Deviation::exit0 || d == Deviation::exec;
}
// The others go on without the culprit.
constexpr bool is_gone_after(Deviation d) noexcept {
  return is_death(d) || d == Deviation::stop || d == Deviation::leave;
}

// All that a case is, out of its seed: the same on every rank and in the driver.
struct Plan {
  std::uint64_t seed = 0;
  int ranks = 2;
  std::vector<GroupPlan> groups;
  std::vector<Step> steps;
  Deviation deviation = Deviation::none;
  int culprit = 0;
  int at = -1;                         // the step; -1: while the world comes together
  std::chrono::microseconds delay{0};  // from the begin of the step, in another thread; 0: before
  Case other{};                        // the call of the culprit
  bool recover = false;                // the others make a new world
  bool store_process = false;          // the store is a process, else a file
  bool strangers = false;              // others connect to the store and send what they like
  std::chrono::milliseconds timeout{0};
};

// Whether the deadline alone ends a wait: a recv from any source after a rank has left may be for a
// message of another one, which may itself wait for the rank that receives.
bool waits_for_anybody(const Plan& plan);

// Seeds of one block have worlds of the same size, so that the same processes can run them.
inline constexpr std::uint64_t kBlock = 8;
int ranks_of(std::uint64_t seed);

Plan draw(std::string_view backend, std::uint64_t seed);
// The next collective of the group of that step, or -1.
int next_collective(const Plan& plan, int at);
std::string describe(const Step& step);
std::string describe(const Plan& plan);

}  // namespace c10d::chaos
