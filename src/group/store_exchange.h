// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "src/group/group_state.h"
#include "src/recorder/rank_block.h"

namespace c10d { inline namespace v0 {

// A call that ranks of a group make together and that is no op. They meet in the store of the
// group.
struct GroupCall {
  GroupCallKind kind{};
  std::string call;        // with its arguments, for messages
  std::string key;         // of its own: how the last attempt came out
  std::vector<int> ranks;  // all of them callers
  Deadline deadline{};
  std::string attempt = "0";  // after one that was given up another may follow

  std::string op() const { return std::string(to_string(kind)); }
  std::string round() const { return fmt::format("{}/{}", key, attempt); }
  std::string entry(int rank) const { return fmt::format("{}/{}", round(), rank); }
};

// What each of the ranks, in their order, says: this one `mine`. Throws what broke the group
// meanwhile; a mismatch or that a rank left, which break it; or timed_out, which does not, at the
// deadline of the first of those that wait: either all ranks have met or none has.
std::vector<std::string> exchange(detail::GroupState& state, GroupCall group_call,
                                  const std::string& mine);
// The same among all ranks of the group. At the deadline it breaks the group.
std::vector<std::string> exchange_with_all(detail::GroupState& state, GroupCallKind kind,
                                           std::string call, std::string key,
                                           const std::string& mine, Deadline deadline);

}}  // namespace c10d::v0
