// SPDX-License-Identifier: BSD-3-Clause
// What ranks do to each other on nccl: they die, do not come, make other calls, abort and leave.
// The others get a named error, soon, and go on in a new group.
#include <filesystem>

#include "c10d/capability.h"
#include "c10d/env.h"
#include "tests/fault/nccl/job.h"

namespace c10d::fault { namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{20000}, kSoon{2000};
// On a real GPU it must be enough for the initialisation of NCCL.
const milliseconds kShort{on_one_gpu() ? 6000 : 1000};

// All are in a group and have their memory.
void start(NcclJob& job, milliseconds timeout = kLong) {
  job.expect_ok(job.init("world", timeout));
  job.expect_ok("prepare");
}

// All but one make a new group, which works.
void go_on(NcclJob& job, int all_but = -1) {
  for (const std::string& line :
       {std::string("leave"), job.init("rest", kLong, all_but),
        std::string("tour prepare all_reduce premul batch async shutdown"), std::string("leave"),
        std::string("free")}) {
    for (int rank = 0; rank < job.size(); ++rank)
      if (rank != all_but) job[rank].tell(line);
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank == all_but) continue;
      const Told told = job.hear(rank);
      EXPECT_EQ(told.end, "ok " + line) << "rank " << rank << ": " << told;
    }
  }
}

// Rank 1 of three dies by the script, or now; the others are in the call, or come to it.
void expect_named_death(const std::string& script, const std::string& call) {
  SCOPED_TRACE(script + ", " + call);
  NcclJob job(3, script);
  start(job);
  if (script.empty()) job[1].signal(SIGKILL);
  for (const int rank : {0, 2}) job[rank].tell(call);
  if (!script.empty()) job[1].tell(call);
  const std::string who = "pid " + std::to_string(job[1].pid());
  job.expect_errors("peer_died", {0, 2}, kSoon, {"rank 1", who});
  go_on(job, 1);
}

TEST(NcclDeath, BeforeAnOp) { expect_named_death("", "tour all_reduce"); }

TEST(NcclDeath, AtItsCall) {
  expect_named_death("rank 1: kill at ncclAllReduce #1", "tour all_reduce");
}

TEST(NcclDeath, InAnOp) {
  expect_named_death("rank 1: kill at op ncclAllReduce #3",
                     "tour all_reduce all_reduce all_reduce");
  expect_named_death("rank 1: kill at ncclSend #1", "tour batch");
  expect_named_death("rank 1: kill at op ncclAllGather #1", "tour all_gather");
}

TEST(NcclDeath, AfterAnOp) {
  expect_named_death("rank 1: kill after op ncclAllReduce #2",
                     "tour all_reduce all_reduce all_reduce all_reduce");
}

TEST(NcclDeath, InTheInitialisation) {
  NcclJob job(3, "rank 1: kill at ncclCommInitRankConfig #1");
  job.tell_all(job.init("world", kLong));
  job.expect_errors("peer_died", {0, 2}, kSoon, {"rank 1"});
  go_on(job, 1);
}

TEST(NcclDeath, InShutdownDelaysNobody) {
  NcclJob job(3, "rank 1: kill at ncclCommDestroy #1");
  start(job);
  job.tell_all("tour all_reduce shutdown");
  for (const int rank : {0, 2}) EXPECT_TRUE(job.hear(rank).end.starts_with("ok")) << job.log(rank);
  go_on(job, 1);
}

TEST(NcclDeadline, OfARankThatDoesNotCome) {
  NcclJob job(3, "");
  start(job, kShort);
  for (const int rank : {0, 1}) job[rank].tell("all_reduce");
  job.expect_errors("timed_out", {0, 1}, kShort + kSoon, {"missing: rank 2"});
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclDeadline, OfARankThatDoesNotComeToTheInitialisation) {
  NcclJob job(3, "");
  for (const int rank : {0, 1}) job[rank].tell(job.init("world", kShort));
  job.expect_errors("timed_out", {0, 1}, kShort + kSoon, {"2"});
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclDeadline, OfCallsThatHang) {
  const std::vector<std::string> scripts = {
      "rank 1: ncclCommInitRankConfig #1 hang", "rank 1: ncclAllReduce #1 hang",
      "rank 1: op ncclAllReduce #1 hang",       "rank 1: ncclSend #1 hang",
      "rank 1: op ncclBroadcast #1 hang",       "rank 0: ncclGetUniqueId 1500ms",
      "rank 1: cuDeviceGetUuid_v2 800ms"};
  for_each(scripts, [](const std::string& script) {
    SCOPED_TRACE(script);
    NcclJob job(2, script);
    job.tell_all(job.init("world", kShort));
    bool made = true;
    for (const Told& told : job.hear_all()) {
      made = made && told.end.starts_with("ok");
      EXPECT_TRUE(told.end.starts_with("ok") || told.error.code == "timed_out") << told;
      EXPECT_LE(told.taken, bound(kShort + kSoon)) << told;
    }
    if (made) {
      job.tell_all("tour prepare all_reduce broadcast batch");
      job.expect_errors("timed_out", {0, 1}, kShort + kSoon, {"group \"world\""});
    }
    go_on(job);
    job.expect_clean_end();
  });
}

// Kernels that no abort ends: the memory of the ops is given back to the program all the same.
TEST(NcclDeadline, OfOpsThatNothingEnds) {
  NcclJob job(2,
              "rank 0: op ncclAllReduce #1 hang; ncclCommAbort #1 = 3;"
              "rank 1: op ncclAllReduce #1 hang for ever");
  start(job, kShort);
  job.expect_ok("begin");
  job.tell_all("wait");
  job.expect_errors("timed_out", {0, 1}, kShort + milliseconds(6000), {"running on the GPU"});
  for (const int rank : {0, 1})
    EXPECT_NE(job.log(rank).find("ncclCommAbort is stuck"), std::string::npos) << job.log(rank);
  job.expect_ok("leave");
}

TEST(NcclMismatch, OfCollectivesShowsBothCalls) {
  const struct {
    const char *one, *two, *shown_one, *shown_two;
  } rows[] = {
      {"call all_reduce f32 4 0 gpu", "call broadcast f32 4 0 gpu", "all_reduce(", "broadcast("},
      {"call all_reduce f32 4 0 gpu", "call all_reduce i32 4 0 gpu", "f32 x 4", "i32 x 4"},
      {"call all_reduce f32 4 0 gpu", "call all_reduce f32 3 0 gpu", "x 4", "x 3"},
      {"call broadcast f32 4 0 gpu", "call broadcast f32 4 1 gpu", "root 0", "root 1"},
      {"call all_reduce f32 4 0 gpu", "call all_reduce f32 4 0 cpu", "cuda",
       "all_reduce(sum, f32 x 4)"},
  };
  NcclJob job(2, "");
  int number = 0;
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(row.one) + ", " + row.two);
    job.expect_ok(job.init("world" + std::to_string(number++), kLong));
    job.expect_ok("prepare");
    job[0].tell(row.one);
    job[1].tell(row.two);
    job.expect_errors("mismatch", {0, 1}, kSoon, {row.shown_one, row.shown_two});
    job.expect_ok("leave");
  }
  job.expect_ok("free");
  job.expect_clean_end();
}

// Between hosts the calls are compared through the store.
class NcclHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (!may_have_hosts()) GTEST_SKIP() << "a process may not have a host name of its own here";
  }
};

TEST_F(NcclHosts, OpsRunAndTheirCallsAreComparedBehind) {
  NcclJob job(3, "", {}, Hosts::each_its_own);
  start(job);
  go_on(job);
  job.expect_clean_end();
}

TEST_F(NcclHosts, AMismatchShowsBothCallsAndADeadlineWhoIsMissing) {
  NcclJob job(3, "", {}, Hosts::each_its_own);
  start(job);
  job[0].tell("call all_reduce f32 4 0 gpu");
  job[1].tell("call all_reduce f32 3 0 gpu");
  job[2].tell("call all_reduce f32 4 0 gpu");
  job.expect_errors("mismatch", {0, 1, 2}, kSoon, {"rank 1 disagrees with 0, 2", "x 4", "x 3"});
  job.expect_ok("leave");
  job.expect_ok(job.init("second", kShort));
  job.expect_ok("prepare");
  for (const int rank : {0, 1}) job[rank].tell("all_reduce");
  job.expect_errors("timed_out", {0, 1}, kShort + kSoon, {"missing: rank 2"});
  go_on(job);
  job.expect_clean_end();
}

// Then no call reaches NCCL before all ranks have made it.
TEST(NcclMismatch, IsFoundBeforeTheOpWhereThatIsAskedFor) {
  NcclJob job(2, "kill at ncclAllReduce #2", {"C10D_NCCL_CHECK=before"});
  start(job, kShort);
  job.expect_ok("tour all_reduce all_gather batch");
  job[0].tell("call all_reduce f32 4 0 gpu");
  job[1].tell("call all_reduce f32 3 0 gpu");
  job.expect_errors("mismatch", {0, 1}, kSoon, {"f32 x 4", "f32 x 3"});
  job.expect_ok("leave");
  job.expect_ok(job.init("late", kShort));
  job[0].tell("call all_reduce f32 4 0 gpu");
  job.expect_errors("timed_out", {0}, kShort + kSoon, {"missing: rank 1"});
  job.expect_ok("leave");
  job.expect_ok("free");
  job.expect_clean_end();
}

void expect_mismatches_of_messages(Hosts hosts) {
  const struct {
    const char *sent, *received, *shown_one, *shown_two;
  } rows[] = {
      {"send f32 4 1 0", "recv i32 4 0 0", "f32", "i32"},
      {"send f32 4 1 0", "recv f32 3 0 0", "x 4", "x 3"},
      {"send f32 2 1 0", "recv f32 4 0 0", "x 2", "x 4"},
      {"send f32 4 1 7", "recv f32 4 0 8", "tag 7", "tag 8"},
      {"send f32 0 1 0", "recv f32 4 0 0", "x 0", "x 4"},
      {"send f32 4 1 0", "recv f32 0 0 0", "x 4", "x 0"},
  };
  NcclJob job(2, "", {}, hosts);
  int number = 0;
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(row.sent) + ", " + row.received);
    job.expect_ok(job.init("world" + std::to_string(number++), kLong));
    job.expect_ok("prepare");
    job[0].tell(row.sent);
    job[1].tell(row.received);
    job.expect_errors("mismatch", {0, 1}, kSoon, {"send(", "recv(", row.shown_one, row.shown_two});
    job.expect_ok("leave");
  }
  job.expect_ok("free");
  job.expect_clean_end();
}

TEST(NcclMismatch, OfMessagesIsNoSuccessOnAnyRank) { expect_mismatches_of_messages(Hosts::one); }

// The receiver posts ahead, and learns of the last messages from a rank that leaves at once.
TEST_F(NcclHosts, MessagesThatTheOtherEndHasPostedAheadAreFound) {
  NcclJob job(2, "", {}, Hosts::each_its_own);
  start(job);
  job[0].tell("tour post recv post recv post recv wait shutdown");
  job[1].tell("tour post send wait post send wait post send wait shutdown");
  for (const Told& told : job.hear_all()) EXPECT_TRUE(told.end.starts_with("ok")) << told;
  go_on(job);
  job.expect_clean_end();
}

TEST_F(NcclHosts, AMismatchOfMessagesIsNoSuccessOnAnyRank) {
  expect_mismatches_of_messages(Hosts::each_its_own);
}

// The watcher asks on and on while the op hangs.
TEST(NcclError, FoundWhileAnOpRuns) {
  NcclJob job(2, "op ncclAllGather hang; rank 1: ncclCommGetAsyncError #500 = 6");
  start(job);
  job.tell_all("tour all_reduce all_gather");
  job.expect_errors("link_lost", {0, 1}, kSoon, {"rank 1: nccl: remote process", "(6)"});
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclError, ThatTakesTheGpuAway) {
  NcclJob job(3, "rank 1: op ncclAllGather #1 = 700");
  start(job);
  job.tell_all("tour all_reduce all_gather all_reduce");
  for (const Told& told : job.hear_all()) {
    EXPECT_EQ(told.error.code, "backend_error") << told;
    EXPECT_NE(told.error.what.find("ILLEGAL_ADDRESS"), std::string::npos) << told;
    EXPECT_LE(told.taken, bound(kSoon)) << told;
  }
  job.expect_ok("leave");
  // The rank that lost its GPU says so to the next group as well.
  job.tell_all(job.init("again", kLong));
  job.expect_errors("backend_error", {0, 1, 2}, kSoon, {"ILLEGAL_ADDRESS", "rank 1"});
  go_on(job, 1);
}

TEST(NcclError, OfTheDriverThatTheWatcherFinds) {
  NcclJob job(2, "op ncclAllGather hang; rank 1: cuEventQuery #100 = 700");
  start(job);
  job.tell_all("tour all_reduce all_gather");
  job.expect_errors("backend_error", {0, 1}, kSoon, {"rank 1: the CUDA driver", "ILLEGAL_ADDRESS"});
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclError, NoMemory) {
  NcclJob job(2, "rank 1: cuMemAlloc_v2 #1 = 2; cuMemAlloc_v2 #6 = 2");
  job.tell_all(job.init("world", kLong));
  job.expect_errors("out_of_resources", {0, 1}, kSoon, {"OUT_OF_MEMORY", "rank 1"});
  job.expect_ok(job.init("second", kLong));
  job.expect_ok("tour prepare all_reduce");
  job.tell_all("allocate");
  EXPECT_EQ(job.hear(0).end, "ok allocate");
  job.expect_errors("out_of_resources", {1}, kSoon, {"OUT_OF_MEMORY"});
  job.expect_ok("tour all_reduce allocate all_reduce");
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclInput, TwoRanksOnOneGpu) {
  NcclJob job(3, "");
  job[2].tell("device 1");
  EXPECT_EQ(job.hear(2).end, "ok device 1");
  job.tell_all(job.init("world", kLong));
  job.expect_errors("unsupported", {0, 1, 2}, kSoon, {"ranks 1 and 2", "GPU-", "C10D_DEVICE"});
  job[2].tell("device 2");
  EXPECT_EQ(job.hear(2).end, "ok device 2");
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclInput, SumsInDifferentTypes) {
  NcclJob job(2, "");
  job[1].tell("set C10D_NCCL_ACCUMULATE f32");
  EXPECT_EQ(job.hear(1).end, "ok set C10D_NCCL_ACCUMULATE f32");
  job.tell_all(job.init("world", kLong));
  job.expect_errors("mismatch", {0, 1}, kSoon, {"values of C10D_NCCL_ACCUMULATE"});
  job.expect_clean_end();
}

TEST(NcclInput, TheLibraryIsFoundWhereTheLoaderLooks) {
  const TemporaryDirectory folder;
  std::filesystem::create_symlink(*env("C10D_NCCL_LIBRARY"), folder / "libnccl.so.2");
  NcclJob job(2, "", {"C10D_NCCL_LIBRARY=", "LD_LIBRARY_PATH=" + folder.path()});
  start(job);
  job.expect_ok("tour all_reduce");
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclInput, LibrariesThatCannotBeUsed) {
  const std::string odd = C10D_TEST_LIBRARIES;
  const struct {
    std::string setting;
    std::vector<std::string> words;
  } rows[] = {
      {"C10D_NCCL_LIBRARY=" + odd + "libnccl_2_17_1.so", {"is NCCL 2.17.1", "install 2.18"}},
      {"C10D_NCCL_LIBRARY=" + odd + "libhalf_cuda.so", {"is no NCCL", "libhalf_cuda.so"}},
      {"C10D_NCCL_LIBRARY=/no/libnccl.so.2", {"no NCCL", "/no/libnccl.so.2", "install"}},
      {"C10D_CUDA_LIBRARY=/no/libcuda.so.1", {"no CUDA driver", "/no/libcuda.so.1"}},
      {"C10D_CUDA_LIBRARY=" + odd + "libhalf_cuda.so", {"libhalf_cuda.so"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.setting);
    NcclJob job(2, "", {row.setting});
    job.tell_all(job.init("world", kLong));
    job.expect_errors("unsupported", {0, 1}, kSoon, row.words);
    job.expect_clean_end();
  }
}

TEST(NcclInput, MessagesThatNcclCannotDoLeaveTheGroupIntact) {
  NcclJob job(2, "");
  start(job);
  job.tell_all("recv_any");
  job.expect_errors("unsupported", {0, 1}, kSoon, {"name the sender"});
  for (const int rank : {0, 1}) job[rank].tell("send f32 4 " + std::to_string(rank) + " 0");
  job.expect_errors("unsupported", {0, 1}, kSoon, {"copy it"});
  job.expect_ok("tour all_reduce batch");
  go_on(job);
  job.expect_clean_end();
}

// Rank 0 is in an op; rank 1 is too unless `script` is empty.
void expect_abort(const std::string& script, int aborting) {
  SCOPED_TRACE(script + ", by rank " + std::to_string(aborting));
  NcclJob job(2, script);
  start(job);
  job[0].tell("tour all_gather");
  if (!script.empty()) job[1].tell("tour all_gather");
  job[aborting].tell("abort");
  if (script.empty()) job[1].tell("tour all_gather");
  job.expect_errors("revoked", {0, 1}, kSoon, {"told to"});
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclAbort, WhileARankIsMissing) {
  for (const int aborting : {0, 1}) expect_abort("", aborting);
}

// While the first op connects, and while an op runs.
TEST(NcclAbort, FromAnotherThread) {
  for (const char* script : {"rank 1: ncclAllGather #1 hang", "rank 1: op ncclAllGather #1 hang",
                             "op ncclAllGather #1 hang"})
    for (const int aborting : {0, 1}) expect_abort(script, aborting);
}

// What has begun for certain.
TEST(NcclAbort, WhileAnOpRuns) {
  NcclJob job(2, "op ncclAllReduce #1 hang");
  start(job);
  job.expect_ok("begin");
  job.tell_all("wait");
  job[1].tell("abort");
  job.expect_errors("revoked", {0, 1}, kSoon, {"told to"});
  go_on(job);
  job.expect_clean_end();
}

// Nor who comes late to its call, for it has lost its CPU, or the driver is slow.
TEST(NcclAbort, NobodyCallsNcclAfterIt) {
  NcclJob job(2,
              "rank 0: cuLaunchKernel #1 100ms; ncclAllReduce #1 = 3; "
              "rank 1: cuLaunchKernel #1 1s");
  start(job);
  job.tell_all("tour max");
  job.expect_errors("backend_error", {0, 1}, kSoon, {"rank 0", "ncclAllReduce"});
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclAbort, ComesBeforeTheEndOfMemoryInAWindow) {
  NcclJob job(2, "ncclCommAbort #1 200ms", {"C10D_NCCL_WINDOWS=on"});
  start(job);
  job.expect_ok("allocate");
  job.tell_all("abort");
  job.expect_ok("leave");
  job.expect_ok("free");
  job.expect_clean_end();
}

TEST(NcclEnd, WaitsForWhatIsOnTheStream) {
  NcclJob job(2, "op ncclAllReduce 200ms");
  start(job);
  job.expect_ok("enqueue");
  job.expect_ok("shutdown");
  job.expect_ok(job.init("dropped", kLong));
  job.expect_ok("enqueue");
  job.expect_ok("begin");
  job.expect_ok("drop");
  job.expect_ok("wait");
  go_on(job);
  job.expect_clean_end();
}

// A rank that left would take along what others still need.
TEST(NcclEnd, WaitsForTheOtherRanks) {
  constexpr milliseconds kLimit{300};
  NcclJob job(2, "");
  start(job);
  job.expect_ok("tour all_reduce");
  const std::string line = "shutdown_within " + std::to_string(kLimit.count());
  const auto begin = std::chrono::steady_clock::now();
  job[0].tell(line);
  EXPECT_EQ(job.hear(0).end, "ok " + line);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kLimit);
  job[1].tell("shutdown");
  EXPECT_EQ(job.hear(1).end, "ok shutdown");
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclEnd, AbortsACommunicatorThatIsNotDestroyed) {
  NcclJob job(2, "rank 1: ncclCommDestroy #1 hang");
  start(job);
  job.expect_ok("shutdown");
  EXPECT_NE(job.log(1).find("ncclCommDestroy has not returned"), std::string::npos) << job.log(1);
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclEnd, WaitsForWhatHangsUntilItsDeadline) {
  NcclJob job(2, "rank 1: op ncclAllReduce #1 hang");
  start(job);
  job.expect_ok("begin 1000");
  job.expect_ok("drop");
  job.tell_all("wait");
  job.expect_errors("timed_out", {0, 1}, kSoon, {"running on the GPU"});
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclOrder, OfAStreamBehindAnOp) {
  NcclJob job(2, "op ncclAllReduce #1 300ms");
  start(job);
  job.expect_ok("follow");
  go_on(job);
  job.expect_clean_end();
}

// They use the same memory of the group.
TEST(NcclOrder, OfComposedOpsOnTwoStreams) {
  const Support support = backend_supports("nccl", {.op = OpKind::all_reduce,
                                                    .dtype = DType::f32,
                                                    .reduce_op = ReduceOp::max,
                                                    .device = DeviceType::cuda});
  if (!support) GTEST_SKIP() << support.reason;
  NcclJob job(2, "op ncclAllReduce #1 300ms");
  start(job);
  job.expect_ok("two_streams");
  go_on(job);
  job.expect_clean_end();
}

TEST(NcclBatch, WithAnOpThatFails) {
  for (const char* fault : {"ncclSend #1 = 3", "ncclRecv #1 = 3", "ncclGroupStart #1 = 3",
                            "ncclGroupEnd #1 = 1", "cuEventCreate #3 = 999"}) {
    SCOPED_TRACE(fault);
    NcclJob job(2, std::string("rank 1: ") + fault);
    start(job);
    job.tell_all("tour batch");
    job.expect_errors("backend_error", {0, 1}, kSoon, {"rank 1"});
    go_on(job);
    job.expect_clean_end();
  }
}

TEST(NcclFork, TheChildHasNoGroupAndTheParentKeepsIts) {
  NcclJob job(2, "");
  start(job);
  job.expect_ok("tour all_reduce fork all_reduce batch");
  go_on(job);
}

}}  // namespace c10d::fault
