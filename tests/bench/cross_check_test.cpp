// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/cross_check.h"

#include <gtest/gtest.h>

namespace c10d::bench { namespace {

TEST(CrossCheck, ReadsWhatAPlainLoopPrints) {
  EXPECT_EQ(parse_loop_line("65536 204.125"), std::pair(std::uint64_t{65536}, 204.125));
  for (const char* line : {"", "8", "8 ", " 8 1", "8 x", "8 1 2", "-8 1", "8 0", "8 -1", "8 nan",
                           "[0] 8 1", "8\t1", "99999999999999999999 1"})
    EXPECT_FALSE(parse_loop_line(line)) << line;
}

TEST(CrossCheck, ReadsTheTablesOfOtherBenchmarks) {
  const std::pair found(std::uint64_t{65536}, 2.5);
  EXPECT_EQ(parse_table_row("65536                   2.50", 1), found);
  EXPECT_EQ(parse_table_row("        65536         1000         1.50         2.50         2.00", 3),
            found);
  for (const char* line : {"", "# Size       Avg Latency(us)", "       #bytes #repetitions",
                           "65536", "65536 0.00", "65536 x", "# #processes = 2 "})
    EXPECT_FALSE(parse_table_row(line, 1)) << line;
  EXPECT_FALSE(parse_table_row("65536 1000 1.50", 3));
}

// What is slow in one launch is slow on both sides of it.
TEST(CrossCheck, ComparesLaunchByLaunch) {
  const Ratio ratio = ratio_of_launches({1100, 330, 110}, {1000, 100, 100});
  EXPECT_DOUBLE_EQ(ratio.middle, 1.1);
  EXPECT_DOUBLE_EQ(ratio.least, 1.1);
  EXPECT_DOUBLE_EQ(ratio.most, 3.3);
  EXPECT_DOUBLE_EQ(ratio_of_launches({2, 8}, {1, 2, 5}).middle, 3)
      << "a launch that one side lacks";
}

}}  // namespace c10d::bench
