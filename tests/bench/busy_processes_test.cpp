// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/busy_processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace c10d::bench { namespace {

std::vector<std::string> children() {
  std::ifstream file("/proc/self/task/" + std::to_string(gettid()) + "/children");
  return {std::istream_iterator<std::string>(file), {}};
}

// Clock ticks in user mode: the 14th field; the second ends with the last bracket.
long user_time(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  for (int i = 3; i < 14; ++i) fields >> field;
  long ticks = 0;
  fields >> ticks;
  return ticks;
}

TEST(BusyProcesses, ComputeAsLongAsTheyAreWanted) {
  const std::size_t before = children().size();
  {
    const BusyProcesses busy(2);
    const std::vector<std::string> processes = children();
    ASSERT_EQ(processes.size(), before + 2);
    while (std::ranges::any_of(processes, [](const auto& one) { return user_time(one) == 0; }))
      std::this_thread::yield();
  }
  EXPECT_EQ(children().size(), before);
}

}}  // namespace c10d::bench
