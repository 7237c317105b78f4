// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "c10d/error.h"
#include "c10d/export.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

class ProcessGroup;

// The hosts of a job that runs on several. Each host calls launch() with the same values, except
// for `number`, `local_address` and LaunchOptions::ranks. Host 0 has the first ranks of the job,
// host 1 the next ones, and so on.
struct MultiHostOptions {
  int count = 1;   // number of hosts; with 1, nothing below is read
  int number = 0;  // of this host, in [0, count)
  // Address of host 0, as the other hosts reach it. Host 0 serves the store there in which hosts
  // and ranks meet.
  std::string address{};
  std::uint16_t port = 29500;   // of that store
  std::string local_address{};  // of this host, for the backends; empty: the one towards host 0
  std::string job = "c10d";     // name of the job; hosts and ranks of another job are refused
  std::string token{};          // 16 to 1024 secret bytes, the same on every host
  Duration timeout = kDefaultStoreTimeout;  // until all hosts joined
  Duration silence =
      std::chrono::seconds(15);  // a host that is silent for longer is taken for dead
};

// Which CPUs of this host a rank may run on, out of those that this process may run on. Threads of
// the rank inherit them. Memory is not bound: Linux takes it near the CPU that touches it first.
// With l3, numa and socket, local rank 0 has the first cache, node or package, local rank 1 the
// second, and so on, round robin.
enum class CpuBinding {
  none,    // all of them
  share,   // an equal part, of neighbours: whole cores if there are at least as many as ranks
  core,    // one core of that part; progress threads of the rank compete with it
  l3,      // those that share one last-level cache
  numa,    // those of one NUMA node
  socket,  // those of one package
};

// Exit code of a job that LaunchOptions::timeout ended: that of timeout(1).
inline constexpr int kTimedOutExitCode = 124;

// Options of launch().
struct LaunchOptions {
  int ranks = 1;                       // processes to start on this host
  std::vector<std::string> command{};  // program and arguments; no shell
  // Variables for the ranks, besides those of this process and those that launch() sets:
  // docs/launching.md lists them.
  std::map<std::string, std::string> environment{};
  // Where the ranks start, and where a command with a slash, such as ./train, is looked up. Empty:
  // the directory of this process.
  std::string directory{};
  // As torchrun's --virtual-local-rank: LOCAL_RANK is 0 in every rank, and CUDA_VISIBLE_DEVICES
  // names one device, the one that the local rank has in the list of this process. C10D_LOCAL_RANK
  // still differs.
  bool virtual_local_rank = false;
  CpuBinding cpu_binding = CpuBinding::none;  // which CPUs each rank may use
  // Let ranks share a core with CpuBinding::core, and a CPU with share, if there are too few.
  bool overload_cpus = false;
  bool prefix_output = true;  // print "[rank] " before each line
  // Show a status line, such as a progress bar. Where stderr is a terminal, rank 0 gets
  // C10D_TERMINAL_COLUMNS. Text that rank 0 writes to stderr and ends with a carriage return
  // instead of a newline is then shown below all lines, until rank 0 writes the next one.
  bool status_line = false;
  // Signals to this process that are forwarded to the ranks and end the job.
  std::vector<int> signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  // Time between SIGTERM and SIGKILL for the other ranks after a first failure.
  Duration grace = std::chrono::seconds(5);
  // Number of failed ranks to tolerate before the job is stopped. Survivors may form a new group
  // (docs/recovery.md). On one host only.
  int max_failures = 0;
  // Of the whole run: then the ranks are ended as after a first failure. Zero: no limit.
  Duration timeout = Duration::zero();
  MultiHostOptions hosts{};  // of a job on several hosts
  // Gets every line of output instead of stdout and stderr, in the thread of launch(). An exception
  // out of it ends the ranks, and launch() throws it.
  std::function<void(int rank, bool is_stderr, std::string_view line)> on_line{};
};

// How one rank ended.
struct RankResult {
  int rank = 0;            // in the job
  std::int64_t pid = 0;    // its process id
  int exit_code = 0;       // 128 + signal when a signal ended it
  int signal = 0;          // the signal that ended it; 0: it exited
  std::string last_lines;  // of its stderr, at most 20; an uncaught exception is the last of them
};

// How a job ended.
struct LaunchResult {
  // Exit code of the rank that failed first. 0 if none failed, or if no more than max_failures did
  // and another one ended well. kTimedOutExitCode on timeout. The same on all hosts.
  int exit_code = 0;
  // Rank on this host that failed first. -1 if none did, on timeout, or if the cause was on another
  // host.
  int first_failed = -1;
  std::string remote_failure;     // what failed on another host and ended the job; empty: nothing
  int forwarded_signal = 0;       // first signal that this process got and forwarded; 0: none
  bool timed_out = false;         // whether LaunchOptions::timeout ended it
  std::vector<RankResult> ranks;  // of this host, by rank
  // Where the ranks of this host were in their groups when they were stopped, for people: one line
  // for all ranks at the same place. Empty when none of them was in a group.
  std::string rank_positions;
};

// Starts ranks on this host and waits until all have ended: what c10d-run does, for programs that
// start their own ranks. The ranks find rank, size and store in their environment.
//
// On several hosts it returns on all of them together: when all ranks of the job ended, when the
// first failed, or when a host fell silent. No process of the job outlives the call or the caller:
// the ranks are killed when this process dies, however it dies.
//
// LaunchOptions::signals are forwarded to the ranks meanwhile. One that this thread has blocked and
// that is already pending is forwarded first. One launch() at a time in a process.
//
// Throws InvalidArgument for options that make no sense or a program that cannot be started. Throws
// DistError: out_of_resources, concurrent_use (a second launch()), or, on every host that joined,
// why not all hosts joined. A rank that fails is no exception but a LaunchResult.
C10D_API LaunchResult launch(const LaunchOptions& options);

// Prints one line of a rank as launch() does without on_line: for an on_line that copies or
// filters. Lines are whole, and on a terminal control characters are made visible.
C10D_API void print_rank_line(int rank, bool is_stderr, std::string_view line, bool prefix = true);

// Runs f in `ranks` processes of this host, each with its rank in a group of all of them, and
// returns the exit code of the job (torch.multiprocessing.spawn):
//
//     int main() {
//       return c10d::spawn(4, [](const c10d::ProcessGroup& group) { train(group); });
//     }
//
// This process starts its own program once for each rank, with the same arguments, and waits for
// them as launch() does. A rank runs main() up to this call, then f, then it exits: with 0, or with
// 1 after it printed what f threw. So what is before the call runs in every process, and what is
// after it only in this one. In a program that spawns several times, every process makes these
// calls in the same order.
//
// In a process that a launcher started, such as c10d-run, it starts none: this process is a rank
// already, and runs f as that rank of the launcher's job.
//
// `options` are those of launch(), without ranks, command and hosts. The group is that of
// init_process_group(). Throws what launch() throws.
C10D_API int spawn(int ranks, const std::function<void(const ProcessGroup&)>& f,
                   LaunchOptions options = {});

// Exit codes of run_main().
enum ExitCode : int {
  kExitFailure = 1,  // an exception
  kExitInvalid = 2   // InvalidArgument: a mistake in the program or its arguments
};

// The main() of a program: runs f, prints what it throws, and returns an exit code. So an error is
// one line on stderr, "program: what", and not a call of std::terminate() with a core dump:
//
//     int main(int argc, char** argv) {
//       return c10d::run_main(argc, argv, [] {
//         auto group = c10d::init_process_group();
//         ...
//       });
//     }
//
// f takes nothing, or argc and argv. It returns nothing, for exit code 0, or the exit code. If
// several ranks fail with one error, c10d-run prints it once.
template <class F>
requires std::invocable<F&> || std::invocable<F&, int, char**>
int run_main(int argc, char** argv, F f) noexcept {
  const auto call = [&] {
    if constexpr (std::invocable<F&, int, char**>)
      return f(argc, argv);
    else
      return f();
  };
  const auto print = [&](const char* what) {
    const std::string_view path = argc > 0 && argv[0] != nullptr ? argv[0] : "program";
    const std::string_view name = path.substr(path.rfind('/') + 1);
    std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(name.size()), name.data(), what);
  };
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return 0;
    } else {
      return static_cast<int>(call());
    }
  } catch (const InvalidArgument& error) {
    print(error.what());
    return kExitInvalid;
  } catch (const std::exception& error) {
    print(error.what());
  } catch (...) {
    print("an exception that is no std::exception");
  }
  return kExitFailure;
}

}}  // namespace c10d::v0
