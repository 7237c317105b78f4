// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"

namespace c10d::bench {

// The steps of one run of a training program, as its rank 0 prints them in one line of JSON.
struct TrainRun {
  std::string what;                // "torch 1.13.0", "c10d fast"
  std::vector<double> step_ms;     // of the slowest rank
  std::vector<double> exposed_ms;  // communication that no computation hid, where it is known
};
// Throws InvalidArgument for a line that is not such a run.
TrainRun parse_train_run(const std::string& line);

// `c10d-bench train`: step times of the reference models under PyTorch and under c10d, interleaved,
// alone and on options.ranks ranks. Returns the exit code.
int compare_training(const Options& options);

}  // namespace c10d::bench
