// SPDX-License-Identifier: BSD-3-Clause
// Where ranks run: on which CPUs, and in which directory.
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "tests/launch/process.h"
#include "tests/temporary_directory.h"

namespace c10d { inline namespace v0 { namespace {

using Lines = std::vector<std::string>;

// The CPUs that this process, and what it starts, may use: no more than the first two.
class TwoCpus {
 public:
  TwoCpus() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE && numbers_.size() < 2; ++cpu) {
      if (!CPU_ISSET(cpu, &before_)) continue;
      CPU_SET(cpu, &set);
      numbers_.push_back(std::to_string(cpu));
    }
    sched_setaffinity(0, sizeof set, &set);
  }
  ~TwoCpus() { sched_setaffinity(0, sizeof before_, &before_); }
  TwoCpus(const TwoCpus&) = delete;
  TwoCpus& operator=(const TwoCpus&) = delete;
  const Lines& numbers() const { return numbers_; }

 private:
  cpu_set_t before_{};
  Lines numbers_;
};

// "[rank] CPUs threads" of each rank.
Ended cpus_of_ranks(Lines options, const std::map<std::string, std::string>& environment = {}) {
  options.insert(options.end(), {"sh", "-c",
                                 R"(sed -n "s/^Cpus_allowed_list:\t\(.*\)/\1 $OMP_NUM_THREADS/p" )"
                                 "/proc/self/status"});
  return run_ranks(options, environment);
}

TEST(Placement, RanksShareTheCpusThatTheLauncherMayUse) {
  const TwoCpus cpus;
  if (cpus.numbers().size() < 2) GTEST_SKIP() << "there is one CPU";
  const std::string &a = cpus.numbers()[0], &b = cpus.numbers()[1];
  const Lines shared = {"[0] " + a + " 1", "[1] " + b + " 1"};
  for (const char* option : {"--bind=share", "--numa-binding=exclusive"}) {
    const Ended ended = cpus_of_ranks({"-n", "2", option});
    EXPECT_EQ(sorted_lines_of(ended.out), shared) << option << ended.err;
  }
  const Ended verbose = cpus_of_ranks({"-n", "2", "--bind", "share", "-v"});
  EXPECT_TRUE(contains(verbose.err, "local rank 1 on CPUs " + b + "\n")) << verbose.err;
  const Ended more = cpus_of_ranks({"-n", "4", "--bind", "share:overload-allowed"});
  EXPECT_EQ(sorted_lines_of(more.out),
            (Lines{"[0] " + a + " 1", "[1] " + a + " 1", "[2] " + b + " 1", "[3] " + b + " 1"}));
  const Ended refused = cpus_of_ranks({"-n", "3", "--bind", "share"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(
      contains(refused.err, "3 ranks need a CPU each to be bound, and this process may use 2"))
      << refused.err;
}

// On a machine that hwloc is told of, whose CPUs are there.
TEST(Placement, NodesGoRound) {
  const TwoCpus cpus;
  if (cpus.numbers() != Lines{"0", "1"}) GTEST_SKIP() << "CPUs 0 and 1 are needed";
  const std::map<std::string, std::string> machine = {{"HWLOC_SYNTHETIC", "numa:2 core:1 pu:1"}};
  const Lines round = {"[0] 0 1", "[1] 1 1", "[2] 0 1"};
  for (const char* option : {"--bind=numa", "--numa_binding=node"})
    EXPECT_EQ(sorted_lines_of(cpus_of_ranks({"-n", "3", option}, machine).out), round) << option;
  EXPECT_EQ(cpus_of_ranks({"-n", "1", "--bind", "socket"}, machine).out, "[0] 0-1 2\n");
  const Ended few = cpus_of_ranks({"-n", "3", "--bind", "core"}, machine);
  EXPECT_TRUE(contains(few.err, "3 ranks need a core each")) << few.err;
  const Ended gone =
      cpus_of_ranks({"-n", "4", "--bind", "core"}, {{"HWLOC_SYNTHETIC", "core:4 pu:1"}});
  EXPECT_EQ(gone.code, 2);
  EXPECT_TRUE(contains(gone.err, "cannot bind ")) << gone.err;
  EXPECT_TRUE(contains(gone.err, " to the CPUs 2: Invalid argument")) << gone.err;
}

TEST(Placement, RanksStartInTheirDirectory) {
  const TemporaryDirectory folder;
  const std::string path = std::filesystem::canonical(folder.path());
  EXPECT_EQ(run_ranks({"--wdir", folder.path(), "pwd"}).out, "[0] " + path + "\n");
  std::ofstream(folder / "program") << "#!/bin/sh\npwd\n";
  const Ended refused = run_ranks({"--wdir", folder.path(), "./program"});
  EXPECT_TRUE(contains(refused.err, "chmod +x it")) << refused.err;
  std::filesystem::permissions(folder / "program", std::filesystem::perms::owner_all);
  EXPECT_EQ(run_ranks({"--wdir", folder.path(), "./program"}).out, "[0] " + path + "\n");
}

}}}  // namespace c10d::v0
