// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace c10d::bench { namespace {

TEST(WatchdogDeathTest, EndsWhatDoesNotEndAndNamesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Watchdog watchdog;
        watchdog.expect("an hour's work", 3600);
        watchdog.expect("raw:mpi send 8 B", 0.01);
        for (;;) pause();
      },
      testing::ExitedWithCode(124), "raw:mpi send 8 B does not end");
}

TEST(Watchdog, LeavesWhatEndsInTimeAlone) {
  Watchdog watchdog;
  watchdog.expect("something", 3600);
}

}}  // namespace c10d::bench
