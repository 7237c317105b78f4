// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/export.h"
#include "c10d/store.h"

namespace c10d::inline v0 {

// Starts `ranks` processes on this host with the whole environment contract (C10D_* and
// torchrun's), and ends when all have. What `c10d-run` does, for programs that start their own
// ranks.
struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;                // argv; no shell
  std::map<std::string, std::string> environment;  // added to the caller's
  bool prefix_output = true;                       // "[rank] " before each line; whole lines only
  // From SIGTERM to SIGKILL of the survivors after a first failure.
  Duration grace = std::chrono::seconds(5);
  // For the whole run; then the ranks are ended as after a first failure. Zero: for ever.
  Duration timeout = Duration::zero();
  // Instead of stdout and stderr.
  std::function<void(int rank, bool is_stderr, std::string_view line)> on_line;
};

struct RankResult {
  int rank = 0;
  std::int64_t pid = 0;
  int exit_code = 0;       // 128 + signal for a signal
  int signal = 0;          // 0 = it exited
  std::string last_lines;  // of stderr, at most 20
};

struct LaunchResult {
  int exit_code = 0;         // of the first rank that failed, else 0; 124 when timed_out
  int first_failed = -1;     // its rank
  int forwarded_signal = 0;  // the first one that came from outside, else 0
  bool timed_out = false;    // ended because LaunchOptions::timeout was over
  std::vector<RankResult> ranks;
};

// Blocks. SIGINT, SIGTERM, SIGHUP and SIGQUIT are forwarded while it runs. No process outlives the
// call, nor the caller: children are killed when this process dies, however it dies. Throws
// InvalidArgument, DistError.
C10D_API LaunchResult launch(const LaunchOptions& options);

// Prints one line as launch() does without on_line, in one write: for an on_line that copies or
// filters. Control characters are made visible where the output is a terminal.
C10D_API void print_rank_line(int rank, bool is_stderr, std::string_view line, bool prefix = true);

}  // namespace c10d::inline v0
