// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fstream>
#include <string_view>
#include <vector>

#include "tools/run_options.h"

namespace c10d::inline v0 {

// Where the ranks' lines go: to the console, to LOGDIR/RANK/{stdout,stderr}.log, or both.
class RunOutput {
 public:
  explicit RunOutput(const RunOptions& options);  // makes the files; throws std::runtime_error
  void line(int rank, bool is_stderr, std::string_view text);

 private:
  struct Target {
    bool console = true;
    std::ofstream file;
  };
  Target make_target(const RunOptions& options, int rank, bool is_stderr) const;

  bool prefix_;
  std::vector<Target> targets_;  // stdout and stderr of rank 0, of rank 1, ...
};

}  // namespace c10d::inline v0
