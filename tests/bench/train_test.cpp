// SPDX-License-Identifier: BSD-3-Clause
#include "bench/train.h"

#include <gtest/gtest.h>

#include "c10d/error.h"

namespace c10d::bench {
namespace {

TEST(TrainRun, IsReadFromOneLine) {
  const TrainRun run = parse_train_run(
      R"({"what": "c10d fast", "ranks": 2, "step_ms": [4.5, 5], "exposed_ms": [0.5, 0.25]})");
  EXPECT_EQ(run.what, "c10d fast");
  EXPECT_EQ(run.step_ms, (std::vector<double>{4.5, 5}));
  EXPECT_EQ(run.exposed_ms, (std::vector<double>{0.5, 0.25}));
  EXPECT_TRUE(parse_train_run(R"({"what": "torch", "step_ms": [1]})").exposed_ms.empty());
}

TEST(TrainRun, WhatIsNoRunIsRefused) {
  for (const char* line : {"", "{", "[]", "{}", R"({"what": "x"})",
                           R"({"what": "x", "step_ms": 3})", R"({"what": "x", "step_ms": []})",
                           R"({"what": 1, "step_ms": [1]})", R"({"what": "x", "step_ms": ["a"]})"})
    EXPECT_THROW(parse_train_run(line), InvalidArgument) << line;
}

}  // namespace
}  // namespace c10d::bench
