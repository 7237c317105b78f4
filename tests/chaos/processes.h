// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace c10d::chaos {

// From now on this process gets the orphans of its descendants, and dies with its parent.
void adopt_orphans();
// Below this process, with those that have ended and were not reaped.
std::vector<pid_t> descendants();
// Reaped or not.
bool is_gone(pid_t pid);
// Reaps the children that have ended; how they ended, by pid: "signal 9", "exit 1", "exit 0".
void reap(std::map<pid_t, std::string>& ended);
// Kills everything below this process and reaps it.
void end_descendants();
std::string command_of(pid_t pid);

}  // namespace c10d::chaos
