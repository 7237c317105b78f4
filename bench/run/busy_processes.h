// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <vector>

namespace c10d::bench {

// Processes of normal priority that compute as long as this lives, as another job would. They end
// with the thread that made them.
class BusyProcesses {
 public:
  // Throws DistBackendError (out_of_resources).
  explicit BusyProcesses(int count);
  ~BusyProcesses();
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  void end() noexcept;

  std::vector<pid_t> processes_;
};

}  // namespace c10d::bench
