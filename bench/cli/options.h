// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/commands/cross_check.h"
#include "bench/commands/diff.h"
#include "bench/commands/explain.h"
#include "bench/commands/replay.h"
#include "bench/commands/train.h"
#include "bench/model/options.h"

namespace c10d::bench {

struct ReportOptions {
  std::vector<std::string> files;
  std::string html, svg;  // empty: tables on stdout
  bool verbose = false;
};

// The command line: the command, and the options that it has.
struct Options {
  int (*command)(const Options&) = nullptr;  // returns the exit code
  std::vector<std::string> argv;
  RunOptions run;  // and compare
  int tune_ranks = 0;
  ExplainOptions explain;
  TrainOptions train;
  ReplayCommand replay;
  double store_seconds = 0;
  std::string list_topic;
  bool as_json = false;         // list, doctor, ceiling, store
  bool is_cross_check = false;  // doctor
  CrossCheckOptions cross_check;
  ReportOptions report;
  DiffOptions diff;
};

// Parses the command line. Returns an exit code alone when there is nothing to run (help, version,
// mistakes: those are printed on stderr), else options.
struct Parsed {
  std::optional<int> exit_code;
  Options options;
};
Parsed parse_options(int argc, const char* const* argv);

}  // namespace c10d::bench
