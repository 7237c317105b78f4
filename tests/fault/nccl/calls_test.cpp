// SPDX-License-Identifier: BSD-3-Clause
// Each function of NCCL and of the driver fails once from each place where c10d calls it, on one of
// two ranks: every rank gets an error that says what, soon, and then a new group works in the same
// processes. With --all-calls each call of a run fails.
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/backends/nccl/nccl.h"
#include "src/device/driver.h"
#include "tests/fault/nccl/job.h"

namespace c10d::fault { namespace {

using std::chrono::milliseconds;

bool g_all_calls = false;
unsigned g_seeds = 24;
std::optional<unsigned> g_seed;

constexpr milliseconds kTimeout{3000};
constexpr const char* kTour =
    "tour prepare all_reduce premul max bxor avg reduce reduce_max reduce_bxor broadcast "
    "all_gather all_gather_v reduce_scatter reduce_scatter_v reduce_scatter_max "
    "reduce_scatter_bxor scan gather gather_v scatter scatter_v all_to_all all_to_all_v barrier "
    "async batch mixed_batch graph events new_group split abort_part allocate host shutdown";

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
    "ncclCommAbort",     // the log says so
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

// What the test makes no call of fail, and why.
constexpr const char* kAfterFailure = "called after a failure alone: the next test";
constexpr const char* kOfTheProgram = "the program calls it, c10d does not";
constexpr const char* kOfTests = "tests and benchmarks call it, c10d does not";
const std::map<std::string, std::string> kNeverFails = {
    {"cuGetErrorName", kAfterFailure},
    {"cuGetErrorString", kAfterFailure},
    {"ncclGetErrorString", kAfterFailure},
    {"ncclGetLastError", kAfterFailure},
    {"cuStreamBeginCapture_v2", kOfTheProgram},
    {"cuStreamEndCapture", kOfTheProgram},
    {"cuGraphInstantiateWithFlags", kOfTheProgram},
    {"cuGraphLaunch", kOfTheProgram},
    {"cuGraphExecDestroy", kOfTheProgram},
    {"cuGraphDestroy", kOfTheProgram},
    {"cuDeviceGet", kOfTests},
    {"cuDevicePrimaryCtxRelease_v2", kOfTests},
    {"cuCtxGetCurrent", kOfTests},
    {"cuCtxGetDevice", kOfTests},
    {"cuMemHostAlloc", kOfTests},
    {"cuMemFreeHost", kOfTests},
    {"cuStreamQuery", kOfTests},
    {"cuFuncSetAttribute", kOfTests},
    {"cuLaunchHostFunc", kOfTests},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", kOfTests},
    {"cuIpcGetMemHandle", kOfTests},
    {"cuIpcOpenMemHandle_v2", kOfTests},
    {"cuIpcCloseMemHandle", kOfTests},
    {"ncclCommFinalize", kOfTests},
    {"ncclCommSplit", kOfTests},
    {"ncclCommCount", kOfTests},
    {"ncclCommCuDevice", kOfTests},
    {"ncclCommUserRank", kOfTests},
    {"ncclCommRegister", kOfTests},
    {"ncclCommDeregister", kOfTests},
    {"ncclGroupSimulateEnd", kOfTests},
    {"ncclCommShrink", kOfTests},
    {"ncclCommRevoke", kOfTests},
    {"cuLaunchCooperativeKernel", "cuda::Kernel calls it for kernels of the program alone"},
};

// The n-th call of a function by a rank.
struct Site {
  int rank = 0;
  std::string function;
  int n = 0;
  std::string place;  // of the call; empty: not known
};

// How often these are called depends on the time that ops take.
bool is_polled(const std::string& function) {
  return function == "cuEventQuery" || function == "ncclCommGetAsyncError";
}

// Of a run without failures: the first call from each place, or all calls. One alone of a function
// that is polled, and of a harmless one unless it is all calls. Those of rank 0 only from where
// rank 1 has none.
std::vector<Site> sites(bool all_calls) {
  constexpr const char* kOwn = "c10d-fault-nccl+";  // a call of the test, and not of c10d
  NcclJob job(2, "places = 2", kSettings);
  for (const std::string& line :
       {job.init("world", kTimeout), std::string(kTour), std::string("leave"), std::string("free")})
    job.expect_ok(line);
  job.expect_clean_end();
  std::vector<Site> sites;
  std::set<std::pair<std::string, std::string>> places;
  for (const int rank : {1, 0}) {
    for (const auto& [function, calls] : job.calls(rank)) {
      std::map<int, std::string> numbers;
      for (const auto& [place, n] : calls.first)
        if (!place.starts_with(kOwn) && places.emplace(function, place).second) numbers[n] = place;
      if (all_calls && rank == 1 && !numbers.empty() && !is_polled(function))
        for (int n = 1; n <= calls.count; ++n) numbers.try_emplace(n);
      const bool is_once = is_polled(function) || (!all_calls && kHarmless.contains(function));
      if (is_once && !numbers.empty()) numbers.erase(std::next(numbers.begin()), numbers.end());
      for (const auto& [n, place] : numbers) sites.push_back({rank, function, n, place});
    }
  }
  return sites;
}

// A group from its beginning to its end: how many ranks were told of an error, and which.
int visit(NcclJob& job, const Site& site, const std::string& name, const std::string& tour,
          std::string& said) {
  const std::string rank = "rank " + std::to_string(site.rank);
  int failed = 0;
  for (const std::string& line : {job.init(name, kTimeout), tour}) {
    job.tell_all(line);
    const std::vector<Told> all = job.hear_all();
    const Told& first = all[static_cast<std::size_t>(site.rank)];
    const bool is_of_caller =
        kOfTheCaller.contains(site.function) || first.step.ends_with("events");
    // Ranks that have left the subgroup hear of the end of its parent.
    const bool is_of_subgroup = first.error.what.find("\"world/") != std::string::npos;
    for (const Told& told : all) {
      if (told.end.starts_with("ok")) continue;
      ++failed;
      said += "\n    " + testing::PrintToString(told);
      EXPECT_EQ(told.end, "error") << told;
      EXPECT_NE(told.error.code, "none") << told;
      EXPECT_TRUE(told.error.code != "revoked" || is_of_caller || is_of_subgroup) << told;
      EXPECT_TRUE(told.error.what.find(rank) != std::string::npos || is_of_caller ||
                  kOnceInAProcess.contains(site.function))
          << told;
      EXPECT_LE(told.taken, bound(kTimeout + milliseconds(1000))) << told;
    }
    if (failed != 0) break;
  }
  job.expect_ok("leave");
  job.expect_ok("free");
  return failed;
}

void check_failure(const Site& site) {
  constexpr const char* kShortTour = "tour prepare all_reduce batch shutdown";
  const std::string& function = site.function;
  const std::string fault = "rank " + std::to_string(site.rank) + ": " + function + " #" +
                            std::to_string(site.n) + " = " +
                            (function.starts_with("nccl") ? "3" : "999");
  SCOPED_TRACE(fault + " at " + site.place);
  NcclJob job(2, fault, kSettings);
  std::string said;
  int failed = visit(job, site, "world", kTour, said);
  // A run may have fewer calls than the one whose calls were counted.
  if (failed == 0 && !kHarmless.contains(function))
    failed = visit(job, site, "again", kShortTour, said);
  std::printf("%-48s %d ranks told%s\n", fault.c_str(), failed, said.c_str());
  EXPECT_TRUE(failed == 0 || failed == 2) << said;
  if (!kOnceInAProcess.contains(function)) {
    std::string wrong;
    EXPECT_EQ(visit(job, site, "new", kShortTour, wrong), 0) << wrong;
  }
  // A thread without context frees nothing.
  const bool is_kept = failed == 0 && function == "cuCtxPushCurrent_v2";
  // Memory is freed, and nobody can say when it may.
  const bool is_known = function != "cuEventSynchronize" && function != "cuStreamSynchronize";
  if (is_known)
    job.expect_clean_end(!is_kept && !function.ends_with("Free_v2") &&
                         !function.ends_with("MemFree") && !function.ends_with("Deregister") &&
                         function != "cuCtxSynchronize" && !function.ends_with("Destroy_v2") &&
                         !function.ends_with("Destroy") && !function.ends_with("Abort") &&
                         !function.ends_with("Unload"));
  // Of some functions it may call fewer than before.
  const bool is_called = !is_known || job.calls(site.rank)[function].count >= site.n;
  EXPECT_TRUE(failed != 0 || kHarmless.contains(function) || is_kept || !is_called)
      << "nobody was told";
}

class NcclCalls : public testing::Test {};

TEST_F(NcclCalls, AFailureIsNamedOnEveryRank) {
  const std::vector<Site> all = sites(g_all_calls);
  for_each(all, check_failure);
  std::printf("%zu calls failed\n", all.size());
  std::set<std::string> never, known;
  for (const std::string& function : functions()) never.insert(function);
  for (const Site& site : all) never.erase(site.function);
  for (const auto& [function, why] : kNeverFails) known.insert(function);
  EXPECT_EQ(never, known) << "kTour lacks a call, or kNeverFails says what is no longer so";
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
    else if (argument == "--all-calls")
      c10d::fault::g_all_calls = true;
    else if (argument.starts_with("--seed="))
      c10d::fault::g_seed = static_cast<unsigned>(std::stoul(argument.substr(7)));
  }
  return RUN_ALL_TESTS();
}
