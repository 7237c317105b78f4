// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/train.h"

#include <gtest/gtest.h>

namespace c10d::bench { namespace {

TEST(StepTimes, AreReadFromALine) {
  const auto alone = parse_step_times("PyTorch 1.13: median step 145.81 ms");
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->median_ms, 145.81);
  EXPECT_FALSE(alone->waits_ms);
  const auto ranks =
      parse_step_times("epoch 1/1  31 samples/s  median step 9.50 ms, waits 0.25 ms  loss 2.3");
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->median_ms, 9.5);
  EXPECT_EQ(ranks->waits_ms, 0.25);
}

TEST(StepTimes, OtherLinesSayNothing) {
  for (const char* line : {"", "weights 1234", "median step", "median step ms", "median step x ms"})
    EXPECT_FALSE(parse_step_times(line)) << line;
}

}}  // namespace c10d::bench
