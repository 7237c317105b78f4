// SPDX-License-Identifier: BSD-3-Clause
// Each function of NCCL and of the driver fails once, on one of two ranks, wherever nccl calls it:
// every rank gets an error that says what, soon, and then a new group works in the same processes.
#include <cstdio>
#include <set>

#include "src/backends/nccl/nccl.h"
#include "src/device/driver.h"
#include "tests/fault/nccl/job.h"

namespace c10d::fault { namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeout{3000};
constexpr const char* kTour =
    "tour prepare all_reduce premul reduce broadcast all_gather all_gather_v reduce_scatter "
    "reduce_scatter_v gather scatter all_to_all barrier async batch allocate host shutdown";

std::vector<std::string> functions() {
  std::vector<std::string> all;
#define C10D_NAME(member, symbol, ...) all.emplace_back(#symbol);
#define C10D_NAME_OF_NCCL(since, member, symbol, ...) C10D_NAME(member, symbol)
  C10D_NCCL_FUNCTIONS(C10D_NAME_OF_NCCL)
  C10D_DRIVER_FUNCTIONS(C10D_NAME)
#undef C10D_NAME_OF_NCCL
#undef C10D_NAME
  return all;
}

// A failure of these takes nothing from the program: they give back, or say more than is needed.
const std::set<std::string> kHarmless = {
    "ncclCommDestroy",     // the log says so, and the communicator is aborted
    "ncclRedOpDestroy",    // goes with the communicator
    "cuDriverGetVersion",  // the version is not known
    "cuThreadExchangeStreamCaptureMode",
    "cuCtxPopCurrent_v2",
    "cuMemFree_v2",
    "cuEventDestroy_v2",
    "cuStreamDestroy_v2",
};

// A failure of these is of the caller alone, as a wrong argument: the group has heard of nothing.
const std::set<std::string> kOfTheCaller = {
    "cuMemAlloc_v2",          "cuMemsetD8Async",     "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",   "cuStreamSynchronize", "cuStreamCreateWithPriority",
    "cuPointerGetAttributes", "cuStreamGetCtx",      "cuStreamWaitEvent",
    "cuCtxPushCurrent_v2",    "cuEventCreate",       "cuEventSynchronize",
};

// After a failure of these the process has no GPU, or no NCCL.
const std::set<std::string> kOnceInAProcess = {"ncclGetVersion", "cuInit", "cuDeviceGetCount"};

class NcclCalls : public testing::Test {
 protected:
  // Whether rank 1 makes the n-th call of the function in a tour.
  static bool is_called(const std::string& function, int n) {
    NcclJob job(2, "rank 1: kill at " + function + " #" + std::to_string(n));
    for (const std::string& line : {job.init("world", kTimeout), std::string(kTour),
                                    std::string("leave"), std::string("free")}) {
      job.tell_all(line);
      if (job.hear(1).end == "(it ended)") return true;
    }
    return false;
  }
};

void check_failure(const std::string& function, int n, int code) {
  const std::string fault = function + " #" + std::to_string(n) + " = " + std::to_string(code);
  SCOPED_TRACE(fault);
  NcclJob job(2, "rank 1: " + fault);
  int failed = 0;
  std::string said;
  for (const std::string& line : {job.init("world", kTimeout), std::string(kTour)}) {
    job.tell_all(line);
    const std::vector<Told> all = job.hear_all();
    failed = 0;
    for (const Told& told : all) {
      if (told.end.starts_with("ok")) continue;
      ++failed;
      said += "\n    " + testing::PrintToString(told);
      EXPECT_EQ(told.end, "error") << told;
      EXPECT_NE(told.error.code, "none") << told;
      EXPECT_TRUE(told.error.code != "revoked" || kOfTheCaller.contains(function)) << told;
      EXPECT_TRUE(told.error.rank == 1 || kOfTheCaller.contains(function) ||
                  kOnceInAProcess.contains(function))
          << told;
      EXPECT_LE(told.taken, bound(kTimeout + milliseconds(1000))) << told;
    }
    if (failed != 0) break;
  }
  std::printf("%-48s %d ranks told%s\n", fault.c_str(), failed, said.c_str());
  EXPECT_TRUE(failed == 0 || failed == 2) << said;
  EXPECT_TRUE(failed != 0 || kHarmless.contains(function)) << "nobody was told";
  job.expect_ok("leave");
  if (!kOnceInAProcess.contains(function)) {
    job.expect_ok(job.init("again", kTimeout));
    job.expect_ok("tour prepare all_reduce batch shutdown");
    job.expect_ok("leave");
  }
  job.expect_ok("free");
  job.expect_clean_end(!function.ends_with("Free_v2") && !function.ends_with("Destroy_v2") &&
                       !function.ends_with("Destroy") && !function.ends_with("Abort"));
}

TEST_F(NcclCalls, AFailureIsNamedOnEveryRank) {
  std::string never;
  int sites = 0;
  for (const std::string& function : functions()) {
    for (const int n : {1, 2, 5, 20}) {
      if (!is_called(function, n)) {
        if (n == 1) never += " " + function;
        break;
      }
      ++sites;
      check_failure(function, n, function.starts_with("nccl") ? 3 : 999);
    }
  }
  std::printf("%d calls failed; never called:%s\n", sites, never.c_str());
}

}}  // namespace c10d::fault
