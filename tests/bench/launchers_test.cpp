// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/bench/programs.h"

namespace c10d::bench { namespace {

TEST(Launchers, UnderC10dRunRankZeroPrints) {
  const std::string command = C10D_RUN " -n 2 " C10D_BENCH;
  const Ended ended = run_line(command + " run -s 8 -i 3 -w 0 --blocks 1 2>&1");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("2 ranks, 1 launch x 1 block"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("[1]"), std::string::npos) << "the other rank is silent: " << ended.out;
  EXPECT_EQ(ended.out.find("W008"), std::string::npos) << ended.out;
  const Ended more = run_line(command + " run -s 8 -i 3 -w 0 --blocks 1 --launches 4 2>&1");
  EXPECT_NE(more.out.find("W008 --launches 4: c10d has started the ranks, once"), std::string::npos)
      << more.out;
  EXPECT_EQ(run_line(command + " run -n 3 -s 8 2>&1").code, 2) << "-n must agree";
}

// Who prints is a rank itself, and told to end with all of them.
TEST(Launchers, AnInterruptedRunLeavesWholeFiles) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended = interrupted(
      {C10D_RUN, "-n", "2", "--grace", "200", C10D_BENCH, "run", "-s", "1K", "--time", "60s",
       "--blocks", "600", "--csv", folder / "r.csv", "--report", folder / "r.html"},
      json, SIGINT, "\"cell\"");
  EXPECT_NE(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("all_reduce f32 sum"), std::string::npos)
      << "the partial table: " << ended.out;
  const std::vector<Json> lines = lines_of(json);
  EXPECT_EQ(lines.back()["t"], "end") << ended.out;
  EXPECT_EQ(lines.back()["complete"], false);
  EXPECT_NE(text_of(folder / "r.csv").find("all_reduce,native"), std::string::npos);
  EXPECT_NE(text_of(folder / "r.html").find("</html>"), std::string::npos);
}

TEST(Launchers, WhatALauncherStartedIsPlannedOnceAndRefusedBeforeItMeets) {
  const std::string command = C10D_RUN " -n 3 " C10D_BENCH " run -s 4T ";
  const Ended plan = run_line(command + "--dry-run 2>&1");
  EXPECT_EQ(plan.code, 0) << plan.out;
  const std::size_t said = plan.out.find("ranks     3 on this host");
  EXPECT_NE(said, std::string::npos) << plan.out;
  EXPECT_EQ(plan.out.find("ranks     3", said + 1), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("blocks    1 launch x"), std::string::npos) << plan.out;
  const Ended busy = run_line(command + "--busy 1 2>&1");
  EXPECT_EQ(busy.code, 2) << busy.out;
  EXPECT_NE(busy.out.find("--busy 1: c10d has started the ranks"), std::string::npos) << busy.out;
  const Ended refused = run_line(command + "2>&1");
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_NE(refused.out.find("3 ranks x 8 TiB of buffers"), std::string::npos) << refused.out;
}

TEST(Launchers, UnderMpirunRanksMeetWithoutBeingTold) {
  if (run_line("mpirun --version 2>&1").out.find("Open MPI") == std::string::npos)
    GTEST_SKIP() << "no Open MPI (Debian: openmpi-bin)";
  const Ended ended =
      run_line("mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 " C10D_BENCH
               " run -s 8 -i 3 -w 0 --blocks 1 2>&1");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("2 ranks, 1 launch x 1 block"), std::string::npos) << ended.out;
}

}}  // namespace c10d::bench
