// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>

#include "tools/run/options.h"

namespace c10d { inline namespace v0 {

// Starts c10d-run on every host of `options`, this one directly and the others by the agent, prints
// what they print, and waits until all have ended. The secret of the job and the variables of -x go
// over the standard input of the agents, whose end tells a host to end its ranks: so nothing is
// left behind, whichever part is killed. Returns the exit code of the host that failed first.
// Throws InvalidArgument when the agent cannot be started.
int start_hosts(const RunOptions& options);

// The other end: reads the secret from the first line of stdin and, with --env-on-stdin, the
// variables behind it. From then on SIGTERM comes to this process when stdin ends. Throws
// InvalidArgument.
struct FromStdin {
  std::string secret;
  std::map<std::string, std::string> environment;
};
FromStdin read_stdin(bool with_environment);
// A failure that other hosts may know too, or say themselves: it is printed once.
void tell_starter(const std::string& failure);

}}  // namespace c10d::v0
