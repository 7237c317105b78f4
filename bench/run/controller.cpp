// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/controller.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string_view>

#include "bench/measure/case_list.h"
#include "bench/measure/gpu.h"
#include "bench/measure/machine.h"
#include "bench/measure/native_algorithms.h"
#include "bench/measure/subject.h"
#include "bench/model/column_name.h"
#include "bench/rank/rank.h"
#include "bench/run/busy_processes.h"
#include "bench/run/mpirun.h"
#include "bench/run/process_sets.h"
#include "bench/run/record_pipe.h"
#include "bench/run/roofline.h"
#include "bench/run/session.h"
#include "bench/run/signal_guard.h"
#include "bench/text/format.h"
#include "bench/torch/interpreter.h"
#include "c10d/capability.h"
#include "c10d/env.h"
#include "c10d/error.h"
#include "c10d/launch.h"

namespace c10d::bench {
namespace {

int run_as_worker(const RunOptions& options) {
  std::ofstream results;
  return run_rank(options, [&](const Json& line) {
    if (!results.is_open()) results.open(options.worker.results, std::ios::binary);
    results << line_text(line) << std::endl;
  });
}

// What a launcher has decided.
void follow_launcher(const LaunchInfo& info, RunOptions& options) {
  if (options.placement.ranks != 0 && options.placement.ranks != info.size)
    throw InvalidArgument(fmt::format("-n {}: {} started {} ranks ({}); leave -n out",
                                      options.placement.ranks, info.launcher, info.size,
                                      fmt::join(info.evidence, " ")));
  if (options.measurement.busy > 0)
    throw InvalidArgument(
        fmt::format("--busy {}: {} has started the ranks already; start c10d-bench itself",
                    options.measurement.busy, info.launcher));
  options.placement.ranks = info.size;
  options.launches = 1;
}

// `launches`: as asked for.
int run_under_launcher(const RunOptions& options, int launches, std::size_t cases,
                       const LaunchInfo& info) {
  if (info.rank != 0) return run_rank(options, [](const Json&) {});
  const HeldSignals held;
  Session session(options, info.size, info.local_size, cases, info.launcher);
  // The others end by it, and this rank cannot go on alone. What it waits for may never come.
  const SignalWatch watch(held, [&](int signal) {
    try {
      _exit(session.finish(128 + signal));
    } catch (const std::exception& error) {
      fmt::print(stderr, "c10d-bench: {}\n", error.what());
      _exit(128 + signal);
    }
  });
  if (options.verdicts.control == Control::solo && options.compare)
    session.warn("W008", "--control solo: needs launches of its own, and so no launcher; left out");
  if (launches > 1)
    session.warn("W008", fmt::format("--launches {}: {} has started the ranks, once: this is one "
                                     "launch; take more --blocks, or start it so many times and "
                                     "give the --json files to c10d-bench report",
                                     launches, info.launcher));
  const int code = run_rank(options, [&](const Json& line) { session.take(line); });
  return session.finish(code);
}

// The one that these ranks use; empty: whichever is on PATH.
std::string mpi_of(const std::vector<std::string>& backends) {
  const auto found = std::ranges::find_if(backends, is_mpi);
  return found == backends.end() ? "" : which_of(*found);
}

// `solo` is the backend to measure alone; empty: all of them together.
LaunchOptions launch_options(const RunOptions& options, int ranks, const Mpi& mpi, int number,
                             const std::string& results, const std::string& solo) {
  LaunchOptions launch = start_self(mpi, ranks);
  launch.command.insert(launch.command.end(), options.argv.begin() + 1, options.argv.end());
  for (const std::string& argument : {std::string("--worker-launch"), std::to_string(number),
                                      std::string("--worker-results"), results})
    launch.command.push_back(argument);
  if (!solo.empty()) launch.command.insert(launch.command.end(), {"--worker-solo", solo});
  return launch;
}

// What a run will take.
struct RunCost {
  std::size_t cases = 0;
  std::uint64_t bytes_per_rank = 0;
  std::uint64_t copied_bytes = 0;  // on rank 0 alone, by each plain copy
  std::uint64_t staged_bytes = 0;  // of buffers on a GPU: what a rank checks at once on the host
  double seconds = 0;
};

RunCost cost_of(const RunOptions& options, int ranks) {
  RunCost cost;
  const std::vector<Case> cases = cases_of(options.cases, ranks);
  cost.cases = cases.size();
  cost.bytes_per_rank = memory_of(cases, ranks, options.cases.window).sum();
  const bool cuda = options.cases.cuda;
  if (cuda && options.backends.heap) cost.bytes_per_rank *= options.backends.names.size();
  for (const Case& c : cases) {
    cost.copied_bytes =
        std::max(cost.copied_bytes,
                 cuda ? GpuCopier::memory_of(c.bytes, c.cache != Cache::hot) : memcpy_bytes(c));
    if (cuda)
      cost.staged_bytes =
          std::max(cost.staged_bytes, stride_of(c, ranks, options.cases.window).sum());
  }
  // One for %ceil, and one for a column.
  if (std::find(options.backends.names.begin(), options.backends.names.end(), "memcpy") !=
      options.backends.names.end())
    cost.copied_bytes *= 2;
  cost.seconds = static_cast<double>(cost.cases * options.backends.names.size()) *
                 options.measurement.seconds * options.launches * 1.5;
  return cost;
}

void print_plan(const RunOptions& options, const RunCost& cost, int ranks, const LaunchInfo& info) {
  fmt::print("cases     {} (op x dtype x redop x root x place x size)\n", cost.cases);
  fmt::print("backends  {}\n", fmt::join(options.backends.names, " "));
  for (const ProcessSet& set : options.sets)
    if (options.sets.size() > 1)
      fmt::print("set       {}: {}{}{}\n", set.name(), set.build.program,
                 set.build.environment.empty() ? "" : " with ",
                 fmt::join(set.build.environment, " "));
  fmt::print(
      "ranks     {}{} on this host{}{}\n", ranks,
      is_between_hosts(info) ? fmt::format(", {} of them", info.local_size) : "",
      options.cases.cuda ? ", buffers on GPUs" : "",
      info.launcher == "none" && needs_mpirun(options.backends.names) ? ", started by mpirun" : "");
  fmt::print("blocks    {} launch{} x {}\n", options.launches, options.launches == 1 ? "" : "es",
             options.measurement.blocks);
  fmt::print("memory    {} per rank for buffers\n", bytes_text(cost.bytes_per_rank));
  fmt::print("time      about {}\n", seconds_text(cost.seconds));
  if (!info.evidence.empty())
    fmt::print("launcher  {}: {}\n", info.launcher, fmt::join(info.evidence, " "));
}

// One set of fresh processes, to its end.
LaunchResult run_launch(const RunOptions& options, int ranks, const Mpi& mpi, Session& session,
                        int number, const std::string& solo) {
  auto pipe = std::make_unique<RecordPipe>([&](const Json& line) { session.take(line); },
                                           [&](const std::string& text) { session.show(text); });
  LaunchOptions launch_with = launch_options(options, ranks, mpi, number, pipe->path(), solo);
  launch_with.on_line = [&](int rank, bool, std::string_view line) {
    session.show(mpi.flavour.empty() ? fmt::format("[{}] {}", rank, line) : std::string(line));
  };
  LaunchResult result = launch(launch_with);
  pipe.reset();  // every record of this launch has been taken
  for (const RankResult& rank : result.ranks)
    if (rank.rank == result.first_failed && rank.signal != 0 && result.forwarded_signal == 0)
      session.show(fmt::format("c10d-bench: {} (pid {}) was killed by signal {} ({})",
                               mpi.flavour.empty() ? fmt::format("rank {}", rank.rank) : "mpirun",
                               rank.pid, rank.signal, sigdescr_np(rank.signal)));
  // mpirun makes an exit code of its own of a signal that was meant for the run.
  if (result.forwarded_signal != 0) result.exit_code = 128 + result.forwarded_signal;
  return result;
}

int run_launches(const RunOptions& options, int ranks, std::size_t cases) {
  const std::string which = mpi_of(options.backends.names);
  const Mpi mpi = !which.empty() || needs_mpirun(options.backends.names) ? find_mpi(which) : Mpi();
  HeldSignals held;
  Session session(options, ranks, ranks, cases,
                  mpi.flavour.empty() ? "c10d" : "mpirun " + mpi.flavour);
  const bool compare = options.compare;
  if (compare && options.verdicts.control != Control::off && !options.cases.cuda)
    take_ceilings(session);
  const BusyProcesses busy(options.measurement.busy);
  int code = 0;
  int launched = 0;
  // A backend that failed, or wrong data, is one thing; a launch that did not arrive to its end
  // would do so again.
  const auto goes_on = [&](int number, const std::string& solo) {
    if (const auto signal = held.take()) {
      if (code != 3) code = 128 + *signal;
      return false;
    }
    const int before = launched++;
    const LaunchResult ended = run_launch(options, ranks, mpi, session, number, solo);
    // Wrong data counts for more than a failure.
    if (ended.exit_code != 0 && code != 3) code = ended.exit_code;
    return ended.forwarded_signal == 0 && (ended.exit_code == 0 || session.launch_is_done(before));
  };
  bool going = true;
  for (int number = 0; going && number < options.launches; ++number) going = goes_on(number, "");
  if (!going || !compare || options.verdicts.control != Control::solo) return session.finish(code);
  const std::vector<std::string> names = session.measured_backends();
  if (names.size() < 2) return session.finish(code);
  session.plan_launches(names.size() * static_cast<std::size_t>(options.launches));
  for (int number = 0; number < options.launches; ++number)
    for (const std::string& name : names)
      if (going) going = goes_on(number, name);
  return session.finish(code);
}

// Only an MPI and a PyTorch have others that take their place.
void refuse_misplaced_at(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (name.find('@') != std::string::npos &&
        ((!is_mpi(name) && !is_torch(name)) || which_of(name).empty()))
      throw InvalidArgument(
          fmt::format("-B {}: only mpi and raw:mpi take an @, with openmpi, mpich or the path of a "
                      "libmpi.so behind it, and torch:gloo and torch:c10d, with a Python",
                      name));
}

// A backend that is not available is a row with the reason; a misspelt name is an error.
void refuse_misspelt(const std::vector<std::string>& columns) {
  std::vector<std::string> names;
  for (const std::string& column : columns) names.push_back(backend_of(column));
  for (const std::string& name : names)
    if (is_torch(name) && name != "torch:gloo" && name != "torch:c10d")
      throw InvalidArgument(
          fmt::format("-B {}: of torch.distributed there are torch:gloo and torch:c10d", name));
  const auto backends_known = known_backend_names();
  std::vector<std::string_view> known(backends_known.begin(), backends_known.end());
  known.insert(known.end(), {"raw:gloo", "raw:mpi", "raw:nccl", "raw:tcp", "torch:gloo",
                             "torch:c10d", "memcpy"});
  if (std::ranges::all_of(names, [&](const std::string& name) {
        return std::ranges::find(known, name) != known.end();
      }))
    return;
  const std::vector<BackendInfo> backends = list_backends();  // opens the modules
  for (const BackendInfo& info : backends) known.push_back(info.name);
  for (const std::string& name : names) {
    const std::string_view near = nearest_name(name, known);
    if (near.empty() || near == name) continue;
    throw InvalidArgument(fmt::format("unknown backend '{}': did you mean {}?", name, near));
  }
}

// Before ranks are started.
void refuse_pythons(const std::vector<std::string>& columns) {
  for (const std::string& column : columns) {
    if (!is_torch(column)) continue;
    try {
      find_pytorch(python_of(column));
    } catch (const std::runtime_error& error) {
      throw InvalidArgument(fmt::format("-B {}: {}", column, error.what()));
    }
  }
}

// Of --device cuda.
constexpr std::array<const char*, 2> kOnGpus = {"nccl", "raw:nccl"};

// A group of a backend for GPUs would have native move buffers of the host.
void refuse_gpu_backends(const std::vector<std::string>& columns) {
  for (const std::string& column : columns) {
    const std::string name = backend_of(column);
    if (name.starts_with("cuda:") || name.starts_with("cpu:"))
      throw InvalidArgument(fmt::format(
          "-B {}: name one backend for each column; nccl serves memory of GPUs, which --device "
          "cuda measures",
          name));
    if (std::ranges::find(kOnGpus, name) != kOnGpus.end())
      throw InvalidArgument(
          fmt::format("-B {}: it serves memory of GPUs; add --device cuda", name));
  }
}

// Before ranks are started: a GPU, NCCL, and backends that serve memory of GPUs.
void require_gpu_backends(const std::vector<std::string>& columns) {
  for (const std::string& column : columns) {
    const std::string name = backend_of(column);
    if (std::ranges::find(kOnGpus, name) == kOnGpus.end())
      throw InvalidArgument(
          fmt::format("-B {}: --device cuda measures memory of GPUs, and {} serves that of the "
                      "host; take {}",
                      name, name, fmt::join(kOnGpus, " or ")));
  }
  require_a_gpu();
  for (const BackendInfo& info : list_backends())
    if (info.name == "nccl" && !info.available)
      throw InvalidArgument(fmt::format("--device cuda: {}", info.reason));
}

// The default of compare: every backend that is available, native first; a plain copy if there is
// no other. The ranks get it as an option, so that all take the same.
void choose_backends(RunOptions& options) {
  std::vector<std::string>& names = options.backends.names;
  if (!names.empty()) return;
  if (!options.builds.empty()) {  // each is compared with itself
    names = {options.cases.cuda ? "nccl" : "native"};
    return;
  }
  if (options.cases.cuda) names.assign(kOnGpus.begin(), kOnGpus.end());
  for (const BackendInfo& info : list_backends())
    if (info.available && !info.cuda_only && info.name.find(':') == std::string::npos &&
        !options.cases.cuda)
      names.push_back(info.name);
  if (names.size() == 1) names.emplace_back("memcpy");
  const std::string text = fmt::format("{}", fmt::join(names, ","));
  if (!options.cases.only.empty())
    throw InvalidArgument("--only needs the backends to choose from: add -B " + text);
  options.argv.insert(options.argv.end(), {"-B", text});
}

void refuse_single(const RunOptions& options) {
  if (!options.compare || options.backends.names.size() > 1 || !options.builds.empty() ||
      !options.cases.only.empty())  // a cell of the base to be seen again has no other
    return;
  throw InvalidArgument(
      fmt::format("compare -B {}: nothing to compare with; add a backend (c10d-bench list "
                  "backends), or memcpy, "
                  "or take c10d-bench run",
                  options.backends.names.front()));
}

void refuse_beyond(const RunCost& cost, int ranks, bool cuda) {
  const auto all = static_cast<std::uint64_t>(ranks);
  if (cuda) {
    refuse_beyond_gpu_memory(cost.bytes_per_rank, cost.copied_bytes, ranks);
    refuse_beyond_memory(cost.staged_bytes * all,
                         fmt::format("{} ranks that check {} of a GPU each on the host", ranks,
                                     bytes_text(cost.staged_bytes)),
                         "lower --max");
    return;
  }
  refuse_beyond_memory(cost.bytes_per_rank * all + cost.copied_bytes,
                       fmt::format("{} ranks x {} of buffers and {} for plain copies", ranks,
                                   bytes_text(cost.bytes_per_rank), bytes_text(cost.copied_bytes)),
                       "lower --max");
}

// Users of nccl-tests mean iterations.
void refuse_oversubscription(int ranks, bool oversubscribe) {
  constexpr int kPerCpu = 4;
  const int cpus = allowed_cpus();
  if (oversubscribe || ranks <= kPerCpu * cpus) return;
  throw InvalidArgument(fmt::format(
      "-n {0}: {0} ranks are more than {1} for each of {2} CPU{3}; --oversubscribe starts them. "
      "Iterations are -i {0}",
      ranks, kPerCpu, cpus, cpus == 1 ? "" : "s"));
}

// One launch of a set after the other needs more of them than blocks in the same processes.
constexpr int kLaunches = 3, kLaunchesInTurns = 10;

void make_sets(RunOptions& options) {
  options.sets = process_sets(options);
  const bool in_turns = options.sets.size() > 1;
  if (options.launches == 0) options.launches = in_turns ? kLaunchesInTurns : kLaunches;
  if (!in_turns) return;
  std::vector<std::string> columns;
  for (const std::string& name : options.backends.names)
    for (const ProcessSet& set : options.sets)
      if (std::ranges::find(set.backends, name) != set.backends.end())
        columns.push_back(set.column(name));
  options.backends.names = columns;
}

// What needs launches of its own.
void refuse_sets(const RunOptions& options, const LaunchInfo& info) {
  const auto& names = options.backends.names;
  const bool at = std::ranges::any_of(
      names, [](const std::string& name) { return name.find('@') != std::string::npos; });
  if (!at && options.builds.empty() && process_sets(options).size() < 2) return;
  throw InvalidArgument(fmt::format(
      "{}: {} has started the ranks already; start c10d-bench itself, and it starts what it "
      "compares",
      options.builds.empty() ? fmt::format("-B {}", fmt::join(names, ",")) : "--against",
      info.launcher));
}

}  // namespace

int run_benchmark(const RunOptions& asked) {
  if (asked.worker.launch >= 0) return run_as_worker(asked);
  RunOptions options = asked;
  const LaunchInfo info = detect_launch();
  choose_backends(options);
  refuse_single(options);
  refuse_misspelt(options.backends.names);
  if (options.cases.cuda)
    require_gpu_backends(options.backends.names);
  else
    refuse_gpu_backends(options.backends.names);
  const bool launched = info.launcher != "none";
  if (launched) refuse_sets(options, info);
  refuse_misplaced_at(options.backends.names);
  refuse_pythons(options.backends.names);
  make_sets(options);
  if (!options.backends.algo.empty()) refuse_unknown_algorithm(options.backends.algo, 2);
  if (launched) follow_launcher(info, options);
  const int ranks = options.placement.ranks != 0 ? options.placement.ranks
                    : options.cases.cuda         ? std::clamp(cuda::device_count(), 1, 8)
                                                 : std::clamp(allowed_cpus(), 2, 8);
  if (!launched) refuse_oversubscription(ranks, options.placement.oversubscribe);
  const RunCost cost = cost_of(options, ranks);
  if (options.dry_run) {
    if (info.rank == 0) print_plan(options, cost, ranks, info);
    return 0;
  }
  // On every rank, and before any of them takes memory: they meet later.
  refuse_beyond(cost, launched ? info.local_size : ranks, options.cases.cuda);
  if (launched) return run_under_launcher(options, asked.launches, cost.cases, info);
  return options.sets.size() > 1 ? run_sets(options, ranks, cost.cases)
                                 : run_launches(options, ranks, cost.cases);
}

int launch_self(const std::vector<std::string>& argv, int ranks) {
  LaunchOptions launch_with = start_self({}, ranks);
  launch_with.command.insert(launch_with.command.end(), argv.begin() + 1, argv.end());
  launch_with.on_line = [](int rank, bool is_stderr, std::string_view line) {
    print_rank_line(rank, is_stderr, line, is_stderr);
  };
  const LaunchResult result = launch(launch_with);
  return result.forwarded_signal != 0 ? 128 + result.forwarded_signal : result.exit_code;
}

}  // namespace c10d::bench
