// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace c10d::bench {

struct TrainOptions {
  std::string model = "resnet18";
  int batch_size = 32;  // of one rank
  int steps = 20;
  int launches = 3;
  int ranks = 2;  // besides a single process
  std::vector<std::string> pythons = {"python3"};
  std::uint64_t seed = 42;
};

// What a training program prints of its steps: "... median step 12.34 ms, waits 1.20 ms".
struct StepTimes {
  double median_ms = 0;
  std::optional<double> waits_ms;  // of communication that no computation hid; more than one rank
};
// Nothing for a line that does not say so.
std::optional<StepTimes> parse_step_times(const std::string& line);

// `c10d-bench train`: step times of the reference models under PyTorch and under c10d, interleaved,
// alone and on options.ranks ranks. Returns the exit code.
int compare_training(const TrainOptions& options);

}  // namespace c10d::bench
