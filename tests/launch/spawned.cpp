// SPDX-License-Identifier: BSD-3-Clause
// A program that starts its own ranks with spawn(): spawned CASE. Exits with 0 if all is as it
// should be.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "c10d/env.h"
#include "c10d/init.h"
#include "c10d/launch.h"

namespace {

using c10d::ProcessGroup;

void expect(bool right, const char* what) {
  if (!right) throw std::runtime_error(what);
}

void sum_up(const ProcessGroup& group, int size) {
  expect(group.size() == size, "another number of ranks");
  expect(group.all_reduce(1) == size, "a wrong sum");
}

// Every process comes by both calls, and the ranks of each run that one's function.
int twice() {
  const pid_t parent = getpid();
  expect(c10d::spawn(2, [](const ProcessGroup& group) { sum_up(group, 2); }) == 0, "first");
  expect(c10d::spawn(3, [](const ProcessGroup& group) { sum_up(group, 3); }) == 0, "second");
  expect(getpid() == parent && !c10d::env("C10D_SPAWN"), "a rank came back");
  return 0;
}

// The exit code is that of the rank that failed, and its error is in what launch() passes on.
int fails() {
  std::string lines;
  c10d::LaunchOptions options;
  options.on_line = [&](int, bool, std::string_view line) { lines += line; };
  const auto fail = [](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) throw std::runtime_error("rank 1 has enough");
    group.barrier();
  };
  expect(c10d::spawn(2, fail, options) == c10d::kExitFailure, "another exit code");
  expect(lines.find("rank 1 has enough") != std::string::npos, "the error is lost");
  return 0;
}

// Started by a launcher, it is a rank already.
int under_launcher() {
  int runs = 0;
  const int code = c10d::spawn(5, [&](const ProcessGroup& group) {
    ++runs;
    sum_up(group, 2);
  });
  expect(code == 0 && runs == 1, "it did not run as the rank that it is");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return c10d::run_main(argc, argv, [](int count, char** arguments) {
    const std::string_view name = count == 2 ? arguments[1] : "";
    if (name == "twice") return twice();
    if (name == "fails") return fails();
    if (name == "under_launcher") return under_launcher();
    if (name == "invalid") throw c10d::InvalidArgument("as a test");
    return 3;
  });
}
