// SPDX-License-Identifier: BSD-3-Clause
// Which calls of NCCL an op makes. Ranks are processes.
#include <gtest/gtest.h>

#include <string>

#include "c10d/capability.h"
#include "tests/fault/nccl/job.h"

namespace c10d::fault { namespace {

// Rank 1 fails in `function` when it enters the op, and so makes that call.
void expect_call(OpKind op, const std::string& function, const std::string& composed) {
  constexpr std::chrono::milliseconds kTimeout{20000}, kSoon{2000};
  const std::string name(to_string(op));
  SCOPED_TRACE(name);
  const Support support = backend_supports("nccl", {.op = op, .device = DeviceType::cuda});
  EXPECT_TRUE(support.ok);
  EXPECT_EQ(support.composed, composed);
  NcclJob job(2, "rank 1: " + function + " #1 = 3");
  job.expect_ok(job.init("world", kTimeout));
  job.expect_ok("prepare");
  job.tell_all("tour " + name);
  job.expect_errors("backend_error", {0, 1}, kSoon, {function, "rank 1"});
  for (const char* line : {"leave", "free"}) job.expect_ok(line);
  job.expect_clean_end();
}

TEST(Calls, AreNcclsOwnFrom228On) {
  expect_call(OpKind::gather, "ncclGather", "");
  expect_call(OpKind::scatter, "ncclScatter", "");
  expect_call(OpKind::all_to_all, "ncclAlltoAll", "");
}

// With NCCL_CHECK_POINTERS NCCL looks at the buffers that only the root uses as well.
TEST(Calls, GiveMemoryOfTheGpuThatNcclDoesNotUse) {
  NcclJob job(3, "", {"NCCL_CHECK_POINTERS=1"});
  job.expect_ok(job.init("world", std::chrono::seconds(20)));
  job.expect_ok("prepare");
  job.expect_ok("tour gather scatter gather_at_root scatter_at_root all_to_all");
  for (const char* line : {"leave", "free"}) job.expect_ok(line);
  job.expect_clean_end();
}

TEST(Calls, AreGroupedMessagesBefore) {
  for (const OpKind op : {OpKind::gather, OpKind::scatter, OpKind::all_to_all})
    expect_call(op, "ncclSend", "grouped send and recv");
}

}}  // namespace c10d::fault
