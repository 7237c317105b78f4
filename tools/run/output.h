// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include "tools/run/options.h"

namespace c10d { inline namespace v0 {

// Where the ranks' lines go: to the console, to LOGDIR/RANK/{stdout,stderr}.log, or both.
class RunOutput {
 public:
  // Which ranks are this host's is known of one host only: then the files are made at once, else
  // with the first line. `options` must outlive it. Throws std::runtime_error.
  explicit RunOutput(const RunOptions& options);
  // Of rank 0: where its stderr goes to the console alone, and the user wants to see things move.
  bool takes_status() const;
  void line(int rank, bool is_stderr, std::string_view text);

 private:
  struct Target {
    bool console = true;
    std::ofstream file;
  };
  Target make_target(int rank, bool is_stderr) const;
  Target& target(int rank, bool is_stderr);

  const RunOptions& options_;
  std::map<std::pair<int, bool>, Target> targets_;  // by rank of the job, and whether stderr
};

}}  // namespace c10d::v0
