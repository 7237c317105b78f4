// SPDX-License-Identifier: BSD-3-Clause
// The line in FAKE_GPU: what it says, and where a mistake is.
#include "tests/fake_gpu/driver/script.h"

#include <gtest/gtest.h>

#include "tests/fake_gpu/driver_tests/process.h"

namespace fake_gpu { namespace {

using Action = Clause::Action;

std::string text_of(const Clause& c) {
  const char* const actions[] = {"result", "delay", "hang", "hang for ever", "kill", "kill after"};
  std::string text = std::to_string(c.rank) + (c.is_op ? " op " : " call ") + c.function + " " +
                     std::to_string(c.first) + "-" +
                     (c.last == ~std::uint64_t{0} ? "" : std::to_string(c.last)) + " " +
                     actions[static_cast<int>(c.action)];
  if (c.action == Action::result) text += " " + std::to_string(c.result);
  if (c.action == Action::delay) text += " " + std::to_string(c.delay.count());
  return text;
}

TEST(Script, Clauses) {
  const std::pair<const char*, const char*> cases[] = {
      {"cuEventQuery #9 = 700", "-1 call cuEventQuery 9-9 result 700"},
      {"cuEventQuery#9=700", "-1 call cuEventQuery 9-9 result 700"},
      {"cuEventQuery = 1", "-1 call cuEventQuery 1- result 1"},
      {"cuMemAlloc_v2 #3+ = 2", "-1 call cuMemAlloc_v2 3- result 2"},
      {"cuMemAlloc_v2 #3-5 = 2", "-1 call cuMemAlloc_v2 3-5 result 2"},
      {"cuMemFree_v2 2s", "-1 call cuMemFree_v2 1- delay 2000000"},
      {"cuMemFree_v2 #1 20ms", "-1 call cuMemFree_v2 1-1 delay 20000"},
      {"cuMemFree_v2 7us", "-1 call cuMemFree_v2 1- delay 7"},
      {"rank 1: ncclAllReduce #3 = 3", "1 call ncclAllReduce 3-3 result 3"},
      {"op #5 hang", "-1 op  5-5 hang"},
      {"op #5 hang for ever", "-1 op  5-5 hang for ever"},
      {"op cuMemsetD8Async #2 = 719", "-1 op cuMemsetD8Async 2-2 result 719"},
      {"op ncclSend hang", "-1 op ncclSend 1- hang"},
      {"kill at cuEventRecord #4", "-1 call cuEventRecord 4-4 kill"},
      {"kill at op #7", "-1 op  7-7 kill"},
      {"kill after op #7", "-1 op  7-7 kill after"},
      {"kill after op cuLaunchKernel #2", "-1 op cuLaunchKernel 2-2 kill after"},
  };
  for (const auto& [line, meaning] : cases) {
    const ReadScript read = read_script(line);
    EXPECT_EQ(read.mistake, "") << line;
    ASSERT_EQ(read.script.clauses.size(), 1U) << line;
    EXPECT_EQ(text_of(read.script.clauses[0]), meaning) << line;
  }
}

TEST(Script, Settings) {
  const Script made = read_script(
                          " devices=2;memory = 64M ; seed=77; places = 3; watcher = c10d-watch; "
                          "rank 3: cuInit=100;;"
                          "cuCtxGetDevice 1ms; all: cuMemGetInfo_v2 = 2; ")
                          .script;
  EXPECT_EQ(made.devices, 2);
  EXPECT_EQ(made.memory, 64U << 20);
  EXPECT_EQ(made.seed, 77U);
  EXPECT_EQ(made.places, 3);
  EXPECT_EQ(made.watcher, "c10d-watch");
  ASSERT_EQ(made.clauses.size(), 3U);
  EXPECT_EQ(made.clauses[0].rank, 3);
  EXPECT_EQ(made.clauses[1].rank, 3) << "a rank holds until the next";
  EXPECT_EQ(made.clauses[2].rank, -1);
  EXPECT_EQ(read_script("").script.devices, 8);
  EXPECT_EQ(read_script("memory=3K").script.memory, 3072U);
  EXPECT_EQ(read_script("devices=0").script.devices, 0);
}

TEST(Script, Mistakes) {
  const std::pair<const char*, std::size_t> cases[] = {
      {"cuEventQuerry = 1", 0},
      {"cuInit", 6},
      {"cuInit =", 8},
      {"cuInit = x", 9},
      {"cuInit #", 8},
      {"cuInit #0 = 1", 9},
      {"cuInit #5-3 = 1", 11},
      {"cuInit 5", 8},
      {"cuInit 5m", 9},
      {"cuInit 2h", 9},
      {"cuInit 5000s", 12},
      {"cuInit hang for", 15},
      {"cuInit hang for all", 19},
      {"cuInit = 1 2", 11},
      {"cuInit = 123456", 15},
      {"rank 1 cuInit = 1", 7},
      {"rank x: cuInit = 1", 5},
      {"rank 1:", 7},
      {"kill", 4},
      {"kill before op #1", 5},
      {"kill after cuInit", 11},
      {"kill at", 7},
      {"devices", 7},
      {"devices = 65", 10},
      {"memory = 64", 11},
      {"memory = 0M", 9},
      {"memory = 9999G", 9},
      {"watcher =", 9},
      {"places = 9", 9},
      {"op", 2},
      {"op cuNothing = 1", 3},
      {"ncclAllReduc = 3", 0},
      {"op ncclSent hang", 3},
      {"nothing = 1", 0},
      {"cuInit = 1; = 2", 12},
      {"cuInit = 99999999999999999999", 28},
      {"; ; 7", 4},
  };
  for (const auto& [line, at] : cases) {
    const ReadScript read = read_script(line);
    EXPECT_NE(read.mistake, "") << line;
    EXPECT_EQ(read.at, at) << line << ": " << read.mistake;
  }
}

TEST(Script, AMistakeEndsTheProcessAndSaysWhere) {
  const Ended ended = without_context("devices=2; cuInitt = 1", [](cu::Api&) {});
  EXPECT_EQ(ended.status, 2 << 8);
  EXPECT_NE(ended.errors.find("at byte 11: no function of the driver or of NCCL is called cuInitt"),
            std::string::npos)
      << ended.errors;
  EXPECT_NE(ended.errors.find("\n             ^\n"), std::string::npos) << ended.errors;
}

}}  // namespace fake_gpu
