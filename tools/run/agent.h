// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "src/launch/spawn.h"

namespace c10d { inline namespace v0 {

// What runs a command on a host, as words: %h in them is the host, %c the command as one word for a
// shell. Without a text ssh, or srun inside an allocation of Slurm. Throws EarlyExit.
std::vector<std::string> agent_of(const std::string& text);

// What runs this program with these arguments on a host: the agent, unless it is this host.
std::vector<std::string> command_on(const std::string& host,
                                    const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& agent);

// Starts such a command, found as a shell finds it, with the variables of this process behind those
// of `options`. Throws as find_program() and spawn() do.
Child start_agent(SpawnOptions options);

}}  // namespace c10d::v0
