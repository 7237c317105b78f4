// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/process_sets.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "bench/model/column_name.h"
#include "bench/model/exit_code.h"
#include "bench/rank/rank.h"
#include "bench/run/mpirun.h"
#include "bench/run/record_pipe.h"
#include "bench/run/roofline.h"
#include "bench/run/session.h"
#include "bench/run/signal_guard.h"
#include "c10d/env.h"
#include "c10d/error.h"
#include "c10d/launch.h"

namespace c10d::bench {
namespace {

namespace fs = std::filesystem;

// The program of a build: itself, or in the folder of a build. Empty: this program.
std::string program_of(const std::string& given) {
  if (given.empty()) return fs::read_symlink("/proc/self/exe");
  for (const char* below : {"", "c10d-bench", "bin/c10d-bench", "build/release/bin/c10d-bench"}) {
    const fs::path program = *below == '\0' ? fs::path(given) : fs::path(given) / below;
    if (fs::is_regular_file(program) && access(program.c_str(), X_OK) == 0)
      return fs::absolute(program);
  }
  throw InvalidArgument(
      fmt::format("--against {}: no c10d-bench there; give the program, a folder that it was built "
                  "in (build/release), or self",
                  given));
}

// What a process has only one of, and which one; empty: nothing of the kind.
std::string library_of(const std::string& column) {
  if (is_mpi(column)) return "mpi@" + which_of(column);
  return is_torch(column) ? "torch@" + which_of(column) : "";
}

// Starts the program of a build with its environment, and without the variables by which launch()
// would make it a rank.
LaunchOptions start_of(const Build& build, const std::vector<std::string>& arguments) {
  LaunchOptions launch;
  launch.command = {"env"};
  const auto without = [&](const char* name) {
    launch.command.insert(launch.command.end(), {"-u", name});
  };
  for (const char* name : variables_of_a_rank()) without(name);
  if (!env("OMP_NUM_THREADS")) without("OMP_NUM_THREADS");  // launch() takes all CPUs for one rank
  for (const auto& part : {build.environment, {build.program}, arguments})
    launch.command.insert(launch.command.end(), part.begin(), part.end());
  return launch;
}

// Before anything is measured: a library that is missing would show only after the first launch.
void refuse_other_than_bench(const Build& build) {
  std::string said;
  LaunchOptions options = start_of(build, {"--version"});
  options.on_line = [&](int, bool, std::string_view line) { said = line; };
  const LaunchResult ended = launch(options);
  if (ended.forwarded_signal != 0) std::raise(ended.forwarded_signal);  // held
  if (ended.forwarded_signal != 0 || (ended.exit_code == 0 && said.starts_with("c10d-bench ")))
    return;
  throw InvalidArgument(
      fmt::format("{} {}: is no c10d-bench that runs here: --version ended with "
                  "{}{}{}",
                  build.side, build.program, ended.exit_code, said.empty() ? "" : ": ", said));
}

// What --only says to this set: a cell is measured in every set, for a ratio needs both sides.
std::string only_of(const std::vector<CellFilter>& only, const ProcessSet& set) {
  std::vector<std::string> cells;
  for (const CellFilter& filter : only) {
    const bool is_here = std::ranges::find(set.backends, filter.backend) != set.backends.end();
    cells.push_back(fmt::format("{}{}:{}",
                                filter.op ? fmt::format("{}:", facts_of(*filter.op).name) : "",
                                is_here ? filter.backend : set.backends.front(), filter.bytes));
  }
  return fmt::format("{}", fmt::join(cells, ","));
}

std::vector<std::string> arguments_of(const RunOptions& options, const ProcessSet& set, int ranks,
                                      const std::string& records) {
  std::vector<std::string> arguments = options.set_arguments;
  arguments.front() = "run";
  arguments.insert(arguments.end(),
                   {"-B", fmt::format("{}", fmt::join(set.backends, ",")), "-n",
                    std::to_string(ranks), "--launches", "1", "--json", records, "--raw", "-q"});
  if (!options.cases.only.empty())
    arguments.insert(arguments.end(), {"--only", only_of(options.cases.only, set)});
  return arguments;
}

// Takes what one launch of a set writes, and hands it on as records of the whole run.
class SetRecords {
 public:
  // `said` are the warnings of all sets so far.
  SetRecords(const ProcessSet& set, int launch, Session& session, std::set<std::string>& said)
      : set_(set), launch_(launch), session_(session), said_(said) {}

  void take(Json line) {
    const std::string kind = line.at("t").get<std::string>();
    if (kind == "run") {
      run_ = std::move(line);
    } else if (kind == "env") {
      take_environment(std::move(line));
    } else if (kind == "warn") {
      take_warning(line);
    } else if (kind == "end") {
      if (line.value("complete", false)) session_.take(Json{{"t", kLaunchDone}});
    } else if (kind == "cell") {
      cell_ = std::move(line);  // its samples come next
    } else if (kind == "sample" && !cell_.is_null()) {
      cell_["samples"] = line.at("us");
      hand_on(std::exchange(cell_, Json()));
    } else if (kind == "skip" || kind == "ceil") {
      hand_on(std::move(line));
    }
  }

 private:
  void hand_on(Json line) {
    if (line.contains("launch")) line["launch"] = launch_;
    if (line.contains("backend")) line["backend"] = set_.column(line["backend"]);
    session_.take(line);
  }
  // Once for each set, with what tells it from the others.
  void take_environment(Json line) {
    if (launch_ != 0) return;
    line["set"] = set_.name();
    line["program"] = set_.build.program;
    for (const char* name : {"tool", "commit"}) line[name] = run_.value(name, Json());
    Json libs = Json::object();
    for (const auto& [name, facts] : line.at("libs").items()) {
      const bool is_column = std::ranges::find(set_.backends, name) != set_.backends.end();
      libs[is_column ? set_.column(name) : name] = facts;
    }
    line["libs"] = std::move(libs);
    session_.take(line);
  }
  // What a set says of its ranks. What it says of its numbers, the whole run says of all numbers.
  void take_warning(const Json& line) {
    WarnRecord warn{line.at("code").get<std::string>(), line.at("text").get<std::string>()};
    if (warn.code == "W003" || warn.code == "W004")
      warn.text = fmt::format("{}: {}", set_.name(), warn.text);
    else if (warn.code != "W001" && warn.code != "W008" && warn.code != "W022")
      return;
    if (said_.insert(warn.text).second) session_.take(to_json(warn));
  }

  const ProcessSet& set_;
  int launch_;
  Session& session_;
  std::set<std::string>& said_;
  Json run_, cell_;
};

// One launch of a set, to its end.
LaunchResult launch_set(const RunOptions& options, const ProcessSet& set, int ranks, int number,
                        Session& session, std::set<std::string>& said) {
  SetRecords records(set, number, session, said);
  const auto show = [&](std::string_view line) {
    session.show(fmt::format("[{}] {}", set.name(), line));
  };
  auto pipe = std::make_unique<RecordPipe>([&](const Json& line) { records.take(line); }, show);
  LaunchOptions start = start_of(set.build, arguments_of(options, set, ranks, pipe->path()));
  start.on_line = [&](int, bool is_stderr, std::string_view line) {
    if (is_stderr) show(line);  // its tables are those of one launch
  };
  LaunchResult result = launch(start);
  pipe.reset();  // every record of this launch has been taken
  // Whether anything ran, and how well, is for the whole run to say.
  if (result.exit_code == kNothingRan || result.exit_code == kNoisy) result.exit_code = 0;
  return result;
}

// All sets once, forwards and backwards in turns: what slows the machine down for a while, or
// warms it up, is not always on the same one.
std::vector<ProcessSet> order_of(std::vector<ProcessSet> sets, int number) {
  if (number % 2 != 0) std::reverse(sets.begin(), sets.end());
  return sets;
}

}  // namespace

std::vector<ProcessSet> process_sets(const RunOptions& options) {
  const std::vector<std::string>& names = options.backends.names;
  const auto first_mpi = std::ranges::find_if(names, is_mpi);
  const std::string others = first_mpi == names.end() ? "" : library_of(*first_mpi);
  std::vector<std::pair<std::string, std::vector<std::string>>> columns;  // by their library
  for (const std::string& name : names) {
    const std::string library = library_of(name), key = library.empty() ? others : library;
    auto found = std::ranges::find(columns, key, [](const auto& one) { return one.first; });
    if (found == columns.end()) found = columns.insert(found, {key, {}});
    found->second.push_back(name);
  }
  std::vector<ProcessSet> sets;
  for (Build build : options.builds.empty() ? std::vector<Build>(1) : options.builds) {
    build.program = program_of(build.program);
    for (const auto& [key, backends] : columns) sets.push_back({build, backends});
  }
  return sets;
}

int run_sets(const RunOptions& options, int ranks, std::size_t cases) {
  HeldSignals held;
  for (const ProcessSet& set : options.sets) {
    if (!set.build.side.empty()) refuse_other_than_bench(set.build);
    for (const std::string& name : set.backends)
      if (is_mpi(name) && !which_of(name).empty())
        find_mpi(which_of(name));  // or throws, before a set runs
  }
  Session session(options, ranks, ranks, cases, "c10d-bench");
  session.plan_launches((options.sets.size() - 1) * static_cast<std::size_t>(options.launches));
  if (options.compare && options.verdicts.control == Control::solo)
    session.warn("W008", "--control solo: needs one set of processes; left out");
  if (options.compare && options.verdicts.control != Control::off) take_ceilings(session);
  std::set<std::string> said;
  int code = 0, launched = 0;
  for (int number = 0; number < options.launches; ++number) {
    for (const ProcessSet& set : order_of(options.sets, number)) {
      std::optional<int> signal = held.take();
      if (!signal) {
        const LaunchResult ended = launch_set(options, set, ranks, number, session, said);
        if (ended.forwarded_signal != 0) signal = ended.forwarded_signal;
        if (ended.exit_code != 0 && code != 3) code = ended.exit_code;
      }
      // Wrong data counts for more than a failure, and also for more than a signal.
      if (signal) return session.finish(code == 3 ? 3 : 128 + *signal);
      if (!session.launch_is_done(launched++)) return session.finish(code == 0 ? 1 : code);
    }
  }
  return session.finish(code);
}

}  // namespace c10d::bench
