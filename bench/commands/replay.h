// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/rank/replay_rank.h"

namespace c10d::bench {

struct ReplayCommand {
  std::string source;  // a process id, a file, or a folder
  ReplayOptions how;
  int launches = 2;
  bool only_list = false;
  bool no_gaps = false;
  std::string compute = "gaps", place = "in", memory = "plain";  // as typed
  std::string json;                                              // file; "-": stdout
  bool chose_backends = false;  // because the command line names none
  // Of a rank that this command starts.
  int worker_launch = -1;
  std::string worker_record, worker_results;
};

// `c10d-bench replay`: lists the ops of a flight record, and runs them on each backend. `argv` is
// the command line. Returns the exit code.
int run_replay(const ReplayCommand& command, const std::vector<std::string>& argv);

}  // namespace c10d::bench
