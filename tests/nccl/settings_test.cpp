// SPDX-License-Identifier: BSD-3-Clause
// One of three ranks is told what nccl does not know. Ranks are processes.
#include <gtest/gtest.h>

#include <string>

#include "tests/fault/nccl/job.h"

namespace c10d::fault { namespace {

constexpr std::chrono::milliseconds kTimeout{20000}, kSoon{2000};

struct Setting {
  const char* name;
  std::string bad, known;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

class Settings : public testing::TestWithParam<Setting> {};

void tell(Child& rank, const std::string& line) {
  rank.tell(line);
  EXPECT_EQ(rank.hear(), "ok " + line);
}

TEST_P(Settings, AnUnknownWordIsNamedOnEveryRankAndNothingIsBegun) {
  const Setting& setting = GetParam();
  const std::string name = setting.name;
  // Of one rank each: one that hears of a failure before it calls would fail in the next group.
  NcclJob job(3, "ncclGetUniqueId #1 = 3; rank 1: ncclCommInitRankConfig #1 = 3");
  tell(job[1], "set " + name + " " + setting.bad);
  job.tell_all(job.init("world", kTimeout));
  job.expect_errors("unsupported", {0, 1, 2}, kSoon,
                    {name + "=" + setting.bad + " is none of: " + setting.known, "unset it",
                     "rank 1", "pid " + std::to_string(job[1].pid())});
  tell(job[1], "set " + name);
  // No call of NCCL was the first one yet: that fails as the script says.
  job.tell_all(job.init("second", kTimeout));
  job.expect_errors("backend_error", {0, 1, 2}, kSoon, {"ncclGetUniqueId"});
  job.tell_all(job.init("third", kTimeout));
  job.expect_errors("backend_error", {0, 1, 2}, kSoon, {"ncclCommInitRankConfig"});
  job.expect_ok(job.init("fourth", kTimeout));
  job.expect_ok("tour prepare all_reduce premul shutdown");
  for (const char* line : {"leave", "free"}) job.expect_ok(line);
  job.expect_clean_end();
}

std::string name_of(const testing::TestParamInfo<Setting>& setting) { return setting.param.name; }

INSTANTIATE_TEST_SUITE_P(Each, Settings,
                         testing::Values(Setting{"C10D_NCCL_ACCUMULATE", "f16", "f32"},
                                         Setting{"C10D_NCCL_CHECK", "befor", "behind, before"},
                                         Setting{"C10D_NCCL_WINDOWS", "ON", "off, on"}),
                         name_of);

}}  // namespace c10d::fault
