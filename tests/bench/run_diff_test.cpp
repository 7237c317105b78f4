// SPDX-License-Identifier: BSD-3-Clause
#include "bench/analyse/run_diff.h"

#include <gtest/gtest.h>

#include "tests/bench/synthetic.h"

namespace c10d::bench { namespace {

// Two launches of three blocks.
Results run_of(const char* cpu, std::uint64_t bytes, double us) {
  Results results;
  results.run = Json{{"id", cpu}, {"sync", "loop"}, {"start", cpu}};
  results.environments.push_back(Json{{"cpu", cpu}, {"libs", {{"gloo", {{"ver", "0.5"}}}}}});
  for (int launch = 0; launch < 2; ++launch)
    for (int block = 0; block < 3; ++block)
      results.cells.push_back(synthetic_cell("native", bytes, launch, block, us));
  return results;
}

TEST(RunDiff, ComparesTheCellsThatBothHave) {
  Results old_run = run_of("a", 8, 10), new_run = run_of("a", 8, 15);
  for (const CellRecord& cell : run_of("a", 64, 10).cells) old_run.cells.push_back(cell);
  for (const CellRecord& cell : run_of("a", 512, 10).cells) new_run.cells.push_back(cell);
  const RunDiff diff = diff_runs(old_run, new_run, 0.02);
  ASSERT_EQ(diff.cells.size(), 1U);
  EXPECT_EQ(diff.cells[0].key.bytes, 8U);
  EXPECT_NEAR(diff.cells[0].old_us.value, 10, 1e-9);
  EXPECT_NEAR(diff.cells[0].ratio.value, 1.5, 1e-9);
  EXPECT_EQ(diff.cells[0].verdict, Verdict::slower);
  EXPECT_EQ(diff.only_old, 1U);
  EXPECT_EQ(diff.only_new, 1U);
  EXPECT_TRUE(diff.facts.empty());
}

TEST(RunDiff, TheSameRunIsTheSame) {
  const RunDiff diff = diff_runs(run_of("a", 8, 10), run_of("a", 8, 10), 0.02);
  ASSERT_EQ(diff.cells.size(), 1U);
  EXPECT_EQ(diff.cells[0].verdict, Verdict::same);
}

// A file may say any number: it is no size.
TEST(RunDiff, TakesAnyNumberOfALaunch) {
  Results far = run_of("a", 8, 10);
  for (CellRecord& cell : far.cells) cell.launch = cell.launch == 0 ? -5 : 2'000'000'000;
  const RunDiff diff = diff_runs(far, run_of("a", 8, 10), 0.02);
  ASSERT_EQ(diff.cells.size(), 1U);
  EXPECT_EQ(diff.cells[0].verdict, Verdict::same);
}

TEST(RunDiff, SaysWhatTheRunsSayDifferentlyOfThemselves) {
  Results new_run = run_of("b", 8, 10);
  new_run.environments[0]["libs"]["mpi"]["ver"] = "4.1";
  const RunDiff diff = diff_runs(run_of("a", 8, 10), new_run, 0.02);
  ASSERT_EQ(diff.facts.size(), 2U);
  EXPECT_EQ(diff.facts[0].name, "cpu");
  EXPECT_EQ(diff.facts[0].old_text, "a");
  EXPECT_EQ(diff.facts[0].new_text, "b");
  EXPECT_EQ(diff.facts[1].name, "libs.mpi.ver");
  EXPECT_EQ(diff.facts[1].old_text, "");
}

}}  // namespace c10d::bench
