// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c10d/capability.h"
#include "c10d/error.h"
#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// The failure, caused by the process of `member`.
inline Failure caused_by(const Member& member, Failure failure) {
  failure.rank = member.rank;
  failure.host = member.host;
  failure.pid = member.pid;
  return failure;
}

// "rank 2 (host a, pid 9)".
std::string name_of(const Member& member);
// Of all `ranks`, ascending. Of many only the numbers, so that no message is too short for them:
// "ranks 1-30, 32 (host a), ranks 31, 33 (host b)".
std::string names_of(const std::vector<Member>& members, const std::vector<int>& ranks);
// Of ascending numbers: "1-30, 32".
C10D_API std::string ranges_of(const std::vector<int>& ranks);

// Field `number` of /proc/PID/stat as proc(5) counts them, from 3, the state, on. Empty when there
// is no such process.
std::string process_stat(std::int64_t pid, int number);

// Whether the rank is known to have ended, reaped or not: in another process of this host.
bool has_ended(const Member& member) noexcept;

// The ranks whose processes have ended or are stopped, as far as this host shows.
C10D_API std::vector<int> not_running(const std::vector<Member>& members);
// Of a wait in vain: names a rank of `among` that has ended or is stopped instead of the rank that
// was waited for, if that one runs, for it may wait itself. Other failures are returned unchanged.
C10D_API Failure name_not_running(Failure failure, const std::vector<Member>& members,
                                  const std::vector<int>& among);
// The same among all members, while all have to come.
C10D_API Failure name_not_running(Failure failure, const std::vector<Member>& members);
// What is to be said of them: "ended or stopped: rank 2 (host a, pid 9)".
C10D_API std::string about_not_running(const std::vector<Member>& members,
                                       const std::vector<int>& ranks);

}}  // namespace c10d::v0
