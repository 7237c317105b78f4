// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c10d/launch.h"

namespace c10d { inline namespace v0 {

struct JobFacts {
  std::string id;
  std::string launch_id;  // of this host's part
  std::string store_host;
  std::uint16_t store_port = 0;
  std::string master_host;
  std::uint16_t master_port = 0;
  int token_fd = -1;
  int first_rank = 0;  // of this host
  int size = 1;
  int status_columns = 0;     // of the terminal that takes rank 0's status line; 0: none does
  std::string local_address;  // of this host, where there are several
  std::vector<std::vector<int>> cpus;  // of each local rank; empty: not bound
};

// Throws InvalidArgument when CUDA_VISIBLE_DEVICES has no device for a virtual local rank.
void check_devices(const LaunchOptions& options);

// The whole environment of a rank, as "NAME=value": the caller's, then torchrun's contract, then
// options.environment, then what tells this job and its ranks apart.
std::vector<std::string> rank_environment(const LaunchOptions& options, const JobFacts& job,
                                          int local_rank);

}}  // namespace c10d::v0
