// SPDX-License-Identifier: BSD-3-Clause
// Each function of NCCL and of the driver fails once, on one of two ranks, wherever nccl calls it:
// every rank gets an error that says what, soon, and then a new group works in the same processes.
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "src/backends/nccl/nccl.h"
#include "src/device/driver.h"
#include "tests/fault/nccl/job.h"

namespace c10d::fault { namespace {

using std::chrono::milliseconds;

unsigned g_seeds = 24;
std::optional<unsigned> g_seed;

constexpr milliseconds kTimeout{3000};
constexpr const char* kTour =
    "tour prepare all_reduce premul reduce broadcast all_gather all_gather_v reduce_scatter "
    "reduce_scatter_v gather scatter all_to_all barrier async batch allocate host shutdown";

// So that allocate() calls NCCL.
const std::vector<std::string> kSettings = {"C10D_NCCL_WINDOWS=on"};

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
    "cuModuleUnload",
    "ncclCommDestroy",   // the log says so, and the communicator is aborted
    "ncclRedOpDestroy",  // goes with the communicator
    "ncclMemAlloc",      // then memory of CUDA does it
    "ncclMemFree",
    "ncclCommWindowDeregister",
    "cuCtxSynchronize",    // then memory is not freed
    "cuDriverGetVersion",  // the version is not known
    "cuThreadExchangeStreamCaptureMode",
    "cuCtxPopCurrent_v2",
    "cuMemFree_v2",
    "cuEventDestroy_v2",
    "cuStreamDestroy_v2",
};

// A failure of these is of the caller alone, as a wrong argument: the group has heard of nothing.
const std::set<std::string> kOfTheCaller = {
    "cuStreamIsCapturing",        "cuMemAlloc_v2",          "cuMemsetD8Async",
    "cuMemcpyHtoDAsync_v2",       "cuMemcpyDtoHAsync_v2",   "cuStreamSynchronize",
    "cuStreamCreateWithPriority", "cuPointerGetAttributes", "cuStreamGetCtx",
    "cuStreamWaitEvent",          "cuCtxPushCurrent_v2",    "cuEventCreate",
    "cuEventSynchronize",
};

// After a failure of these the process has no GPU, or no NCCL.
const std::set<std::string> kOnceInAProcess = {"ncclGetVersion", "cuInit", "cuDeviceGetCount"};

class NcclCalls : public testing::Test {
 protected:
  // Whether rank 1 makes the n-th call of the function in a tour.
  static bool is_called(const std::string& function, int n) {
    NcclJob job(2, "rank 1: kill at " + function + " #" + std::to_string(n), kSettings);
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
  NcclJob job(2, "rank 1: " + fault, kSettings);
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
      EXPECT_TRUE(told.error.what.find("rank 1") != std::string::npos ||
                  kOfTheCaller.contains(function) || kOnceInAProcess.contains(function))
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
  // Memory is freed, and nobody can say when it may.
  if (function == "cuEventSynchronize" || function == "cuStreamSynchronize") return;
  job.expect_clean_end(!function.ends_with("Free_v2") && !function.ends_with("MemFree") &&
                       !function.ends_with("Deregister") && function != "cuCtxSynchronize" &&
                       !function.ends_with("Destroy_v2") && !function.ends_with("Destroy") &&
                       !function.ends_with("Abort") && !function.ends_with("Unload"));
}

TEST_F(NcclCalls, AFailureIsNamedOnEveryRank) {
  std::mutex mutex;
  std::string never;
  std::atomic<int> sites{0};
  for_each(functions(), [&](const std::string& function) {
    const bool is_polled = function == "cuEventQuery" || function == "ncclCommGetAsyncError";
    for (const int n : {1, 20}) {
      if (is_polled && n > 1) return;  // how often depends on the time that ops take
      if (!is_called(function, n)) {
        const std::lock_guard lock(mutex);
        if (n == 1) never += " " + function;
        return;
      }
      ++sites;
      check_failure(function, n, function.starts_with("nccl") ? 3 : 999);
    }
  });
  std::printf("%d calls failed; never called in a run without failures:%s\n", sites.load(),
              never.c_str());
  EXPECT_GT(sites, 50);
}

// What is called only once something has failed fails as well.
TEST_F(NcclCalls, AFailureAfterAFailureIsNamedToo) {
  const std::vector<std::string> scripts = {
      "rank 0: ncclGetUniqueId #1 = 2",
      "rank 1: ncclReduce #1 = 3; ncclCommAbort #1 = 3",
      "rank 1: ncclReduce #1 = 3; ncclGetErrorString #1 = 3",
      "rank 1: ncclReduce #1 = 3; ncclGetLastError #1 = 3",
      "rank 1: cuEventRecord #3 = 999; cuGetErrorString #1 = 999",
      "rank 1: cuEventRecord #3 = 999; cuGetErrorName #1 = 999",
      "rank 1: ncclReduce #1 = 3; cuEventDestroy_v2 = 999",
      "rank 1: cuEventRecord #3 = 999; cuMemFree_v2 #1 = 999",
      "rank 1: ncclCommDestroy #1 = 3; ncclCommAbort #1 = 3",
  };
  for_each(scripts, [&](const std::string& script) {
    SCOPED_TRACE(script);
    NcclJob job(2, script);
    std::vector<Told> all;
    for (const std::string& line : {job.init("world", kTimeout), std::string(kTour)}) {
      job.tell_all(line);
      all = job.hear_all();
      if (all[0].end == "error") break;
    }
    const bool is_end = script.find("Destroy #1") != std::string::npos;  // the log says it
    for (const Told& told : all) {
      EXPECT_TRUE(is_end || told.error.code == "backend_error") << told;
      EXPECT_LE(told.taken, bound(kTimeout + milliseconds(1000))) << told;
    }
    job.expect_ok("leave");
    job.expect_ok(job.init("again", kTimeout));
    job.expect_ok("tour prepare all_reduce batch shutdown");
    job.expect_ok("leave");
  });
}

// What a seed stands for.
std::string faults_by_chance(unsigned seed) {
  const std::vector<std::string> all = {"ncclAllReduce",
                                        "ncclReduce",
                                        "ncclBroadcast",
                                        "ncclSend",
                                        "ncclRecv",
                                        "ncclAllGather",
                                        "ncclReduceScatter",
                                        "ncclGroupStart",
                                        "ncclGroupEnd",
                                        "ncclCommAbort",
                                        "ncclCommDestroy",
                                        "ncclMemAlloc",
                                        "ncclCommWindowRegister",
                                        "ncclCommInitRankConfig",
                                        "ncclGetUniqueId",
                                        "cuEventRecord",
                                        "cuEventQuery",
                                        "cuEventCreate",
                                        "cuMemAlloc_v2",
                                        "cuCtxPushCurrent_v2",
                                        "cuStreamWaitEvent",
                                        "cuMemcpyDtoDAsync_v2",
                                        "ncclRedOpCreatePreMulSum",
                                        "ncclCommGetAsyncError"};
  std::mt19937 random(seed);
  const auto number = [&](int most) { return static_cast<int>(random() % unsigned(most)); };
  std::string script;
  for (int clause = 1 + number(3); clause > 0; --clause) {
    const std::string& function = all[random() % all.size()];
    const bool is_nccl = function.starts_with("nccl");
    // A caller that waits in NCCL is ended by it alone.
    const bool is_abort = function == "ncclCommAbort";
    const bool is_op = function == "ncclAllReduce" || function == "ncclReduce" ||
                       function == "ncclBroadcast" || function == "ncclSend";
    script += "rank " + std::to_string(number(3)) + ": ";
    switch (is_abort ? 2 : number(is_op ? 6 : 3)) {
      case 0:
      case 1:
        script += function + " #" + std::to_string(1 + number(20)) + " = ";
        script +=
            std::to_string(is_nccl ? 1 + number(6) : std::array{1, 2, 700, 719, 999}[number(5)]);
        break;
      case 2:
        script += function + " #" + std::to_string(1 + number(5)) + " " +
                  std::to_string(1 + number(200)) + "ms";
        break;
      case 3:
        script += "op " + function + " #" + std::to_string(1 + number(3)) + " hang";
        break;
      case 4:
        script += function + " #" + std::to_string(1 + number(3)) + " hang";
        break;
      default:
        script += std::string(number(2) ? "kill at " : "kill after op ") + function + " #" +
                  std::to_string(1 + number(3));
    }
    script += "; ";
  }
  return script;
}

// Lines of faults by chance: --seeds=N for more of them, --seed=N for one.
TEST_F(NcclCalls, FaultsByChanceNeitherHangNorPassAsSuccess) {
  std::vector<unsigned> seeds;
  const unsigned first = g_seed ? *g_seed : std::random_device()() % 1'000'000'000;
  for (unsigned i = 0; i < (g_seed ? 1u : g_seeds); ++i) seeds.push_back(first + i);
  std::printf("seeds from %u\n", first);
  for_each(seeds, [&](unsigned seed) {
    const std::string script = faults_by_chance(seed);
    SCOPED_TRACE("--seed=" + std::to_string(seed) + ": " + script);
    NcclJob job(3, script, kSettings);
    std::vector<int> alive = {0, 1, 2};
    for (const std::string& line :
         {job.init("world", kTimeout), std::string(kTour), std::string("leave")}) {
      for (const int rank : alive) job[rank].tell(line);
      for (const int rank : std::exchange(alive, {})) {
        const Told told = job.hear(rank);
        if (told.end != "(it ended)") alive.push_back(rank);
        EXPECT_TRUE(told.end == "ok " + line || told.end == "error" ||
                    (told.end == "(it ended)" && script.find("kill") != std::string::npos))
            << "rank " << rank << ": " << told << job.log(rank);
      }
    }
  });
}

}}  // namespace c10d::fault

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--seeds="))
      c10d::fault::g_seeds = static_cast<unsigned>(std::stoul(argument.substr(8)));
    else if (argument.starts_with("--seed="))
      c10d::fault::g_seed = static_cast<unsigned>(std::stoul(argument.substr(7)));
  }
  return RUN_ALL_TESTS();
}
