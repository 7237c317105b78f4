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

namespace c10d { inline namespace v0 {

// The hosts of a job that spans several: each calls launch() with the same values but `number`,
// `local_address` and LaunchOptions::ranks. Ranks count through the hosts by their numbers.
struct LaunchHosts {
  int count = 1;   // 1: this host alone, and nothing below counts
  int number = 0;  // of this host
  // Of host 0, as the others reach it: there it serves the store in which hosts and ranks meet.
  std::string address{};
  std::uint16_t port = 29500;
  std::string local_address{};  // of this host, for the backends; empty: the one towards host 0
  std::string job = "c10d";     // hosts and ranks of another job are refused
  std::string token{};          // 16 to 1024 secret bytes, the same on every host
  Duration timeout = kDefaultStoreTimeout;      // until all hosts are there
  Duration silence = std::chrono::seconds(15);  // of a host, until it is taken for dead
};

// Starts `ranks` processes on this host with the whole environment contract (C10D_* and
// torchrun's), and ends when all have. What `c10d-run` does, for programs that start their own
// ranks.
struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command{};                // argv; no shell
  std::map<std::string, std::string> environment{};  // added to the caller's
  bool prefix_output = true;                         // "[rank] " before each line; whole lines only
  // Where stderr is a terminal, rank 0 gets C10D_TERMINAL_COLUMNS, and what it writes on stderr up
  // to a '\r' that no '\n' follows is shown below the lines of print_rank_line(), and is no line.
  bool status_line = false;
  // From SIGTERM to SIGKILL of the survivors after a first failure.
  Duration grace = std::chrono::seconds(5);
  // As many ranks may fail without that the others are stopped: they go on in a group of their own
  // (docs/recovery.md). On one host only.
  int max_failures = 0;
  // For the whole run; then the ranks are ended as after a first failure. Zero: for ever.
  Duration timeout = Duration::zero();
  LaunchHosts hosts{};
  // Instead of stdout and stderr, in the thread of launch(). What it throws ends the ranks, and
  // launch() throws it.
  std::function<void(int rank, bool is_stderr, std::string_view line)> on_line{};
};

struct RankResult {
  int rank = 0;  // of the job
  std::int64_t pid = 0;
  int exit_code = 0;  // 128 + signal for a signal
  int signal = 0;     // 0 = it exited
  // Of stderr, at most 20. What an exception says that nothing caught is the last of them.
  std::string last_lines;
};

struct LaunchResult {
  // Of the first rank that failed; 0 if none did, or max_failures at most and others ended well;
  // 124 when timed_out. Of several hosts the same on all.
  int exit_code = 0;
  int first_failed = -1;  // the first rank of this host; none after timed_out or what is elsewhere
  std::string elsewhere;  // what failed on another host and ended the job; empty: nothing
  int forwarded_signal = 0;       // the first one that came from outside, else 0
  bool timed_out = false;         // ended because LaunchOptions::timeout was over
  std::vector<RankResult> ranks;  // of this host
  // Where in their groups the ranks of this host were when they were stopped, for people: a line
  // for those at the same place. Empty where none of them was in a group any more.
  std::string places;
};

// Blocks. SIGINT, SIGTERM, SIGHUP and SIGQUIT are forwarded while it runs, and one that this thread
// has blocked and that is pending is the first. No process outlives the call, nor the caller:
// children are killed when this process dies, however it dies. Returns on all hosts at the same
// time: when all ranks of all have ended, or the first failed, or a host fell silent. Throws
// InvalidArgument, also for a program that is not there; DistError: when not all hosts came
// together, on all that came, concurrent_use (one launch at a time in a process), out_of_resources.
C10D_API LaunchResult launch(const LaunchOptions& options);

// Prints one line as launch() does without on_line, whole, with others that arrived together once
// on_line has had them: for an on_line that copies or filters. Control characters are made visible
// where the output is a terminal.
C10D_API void print_rank_line(int rank, bool is_stderr, std::string_view line, bool prefix = true);

}}  // namespace c10d::v0
