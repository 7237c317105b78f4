// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/cross_check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include "bench/measure/gpu.h"
#include "bench/measure/machine.h"
#include "bench/model/exit_code.h"
#include "bench/model/record.h"
#include "bench/model/stats.h"
#include "bench/run/mpirun.h"
#include "bench/text/format.h"
#include "c10d/env.h"
#include "c10d/error.h"
#include "c10d/launch.h"

namespace c10d::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;     // on memory of the host
constexpr int kMostGpus = 8;  // a rank on each
constexpr std::uint64_t kSizes[] = {8, 64 << 10, 1 << 20, 16 << 20};
constexpr std::uint64_t kSeed = 42;  // of the order, and of the data

using Times = std::map<std::uint64_t, std::vector<double>>;  // microseconds by size and launch

struct Bounds {  // of a ratio, to three decimals as it is printed
  double low = 0, high = 0;
};
constexpr Bounds kSame{0.833, 1.2};   // within 20 %, whichever is the base
constexpr Bounds kTwice{0.5, 2};      // a framework does more around each call
constexpr Bounds kAtMostTwice{0, 2};  // and a GPU waits for the calls of small ops

// A program that knows nothing of the benchmark, and the column that it is held against.
struct Loop {
  std::string what;
  std::string column;
  Bounds bounds;
  LaunchOptions start;
  int column_of_table = 0;  // of the times, where it prints a table with comments
  Times us{};
  std::string problem{};  // why it did not run
  bool absent = false;    // it is not here, which is no failure
  std::string about{};    // what it says of itself, in place of that
};

bool is_of_pytorch(const Loop& loop) { return loop.what == "PyTorch" || loop.what == "torch:nccl"; }

// c10d-bench itself, with one MPI.
struct Bench {
  LaunchOptions start;
  std::string which;      // of its MPI's columns: "@" and what stands behind it, or empty
  std::string problem{};  // why it did not run
};

struct CrossCheck {
  int ranks = kRanks;
  bool cuda = false;
  bool behind_barriers = false;
  std::vector<Loop> loops;
  std::vector<Bench> benches;
  std::map<std::string, Times> columns;  // of c10d-bench
};

bool is_on_path(const std::string& program) {
  std::istringstream folders(env("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
  return false;
}

// An MPI, and what its column has behind "raw:mpi".
struct NamedMpi {
  Mpi mpi;
  std::string which;
};

// For the mpirun on PATH on PATH, for an MPI that was given by its path beside the mpirun of one of
// its ABI; empty: it is not there.
std::string find_program(const NamedMpi& named, const std::vector<NamedMpi>& all,
                         const std::string& name) {
  if (named.which.empty()) return is_on_path(name) ? name : "";
  if (named.mpi.library.empty()) return "";
  for (const NamedMpi& other : all) {
    const fs::path beside = fs::path(other.mpi.mpirun).parent_path() / name;
    if (!other.mpi.library.empty() && other.mpi.flavour == named.mpi.flavour &&
        access(beside.c_str(), X_OK) == 0)
      return beside;
  }
  return "";
}

// The benchmarks of others, built for this MPI or one of its ABI. What they print is a mean.
void add_benchmarks_of_mpi(CrossCheck& check, const NamedMpi& named,
                           const std::vector<NamedMpi>& all) {
  const Mpi& mpi = named.mpi;
  struct Benchmark {
    const char* what;
    std::vector<std::string> command;
    int column;  // OSU: of all ranks; Intel: of the slowest one
  };
  const Benchmark benchmarks[] = {
      {"OSU", {"osu_allreduce", "-m", fmt::format("{}:{}", kSizes[0], kSizes[3])}, 1},
      {"IMB", {"IMB-MPI1", "Allreduce", "-npmin", std::to_string(kRanks), "-msglog", "3:24"}, 3}};
  for (const Benchmark& benchmark : benchmarks) {
    const std::string program = find_program(named, all, benchmark.command.front());
    if (program.empty()) continue;
    Loop loop;
    loop.what = benchmark.what;
    loop.column = "raw:mpi" + named.which;
    loop.bounds = kSame;
    loop.column_of_table = benchmark.column;
    if (mpi.flavour.empty()) {
      loop.absent = true;
      loop.problem = "there is no mpirun on PATH";
    }
    loop.start.command = mpirun_command(mpi, kRanks);
    loop.start.command.push_back(program);
    loop.start.command.insert(loop.start.command.end(), benchmark.command.begin() + 1,
                              benchmark.command.end());
    check.loops.push_back(std::move(loop));
  }
}

// `command` is a program that takes seconds and sizes, and behind them `more`.
void add_loop(CrossCheck& check, const CrossCheckOptions& options, const char* what,
              const std::string& column, Bounds bounds, int ranks, std::vector<std::string> command,
              const std::vector<std::string>& more = {}) {
  Loop loop;
  loop.what = what;
  loop.column = column;
  loop.bounds = bounds;
  if (const fs::path program = command.back(); !fs::exists(program)) {
    loop.absent = true;
    loop.problem = fmt::format("{} was not built", program.filename().string());
  }
  if (check.behind_barriers) command.emplace_back("--barrier");
  command.push_back(fmt::format("{}", options.seconds));
  for (const std::uint64_t size : kSizes) command.push_back(std::to_string(size));
  command.insert(command.end(), more.begin(), more.end());
  loop.start.ranks = ranks;
  loop.start.command = std::move(command);
  check.loops.push_back(std::move(loop));
}

void add_loops_of_mpi(CrossCheck& check, const CrossCheckOptions& options, const fs::path& here,
                      const NamedMpi& named, const std::vector<NamedMpi>& all) {
  std::vector<std::string> under_mpi = mpirun_command(named.mpi, kRanks);
  under_mpi.push_back(here / ("plain_mpi_" + named.mpi.flavour));
  add_loop(check, options, "plain loop", "raw:mpi" + named.which, kSame, 1, std::move(under_mpi));
  add_benchmarks_of_mpi(check, named, all);
}

void add_loops(CrossCheck& check, const CrossCheckOptions& options, const fs::path& here) {
  add_loop(check, options, "plain loop", "native", kSame, kRanks, {here / "plain_native"});
  add_loop(check, options, "plain loop", "raw:gloo", kSame, 1, {here / "plain_gloo"});
  for (const std::string& python : options.pythons)
    add_loop(check, options, "PyTorch", "raw:gloo", kTwice, kRanks,
             {python, here / "torch_loop.py"});
}

void add_bench(CrossCheck& check, const CrossCheckOptions& options, const Mpi& mpi,
               const std::string& which, const std::vector<std::string>& what) {
  check.benches.push_back({start_self(mpi, check.ranks), which});
  std::vector<std::string>& command = check.benches.back().start.command;
  command.push_back("run");
  command.insert(command.end(), what.begin(), what.end());
  command.insert(command.end(), {"all_reduce", "-s", fmt::format("{}", fmt::join(kSizes, ",")),
                                 "--time", fmt::format("{}s", options.seconds), "--seed",
                                 std::to_string(kSeed), "--json", "-"});
}

CrossCheck make(const CrossCheckOptions& options) {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  CrossCheck check;
  check.cuda = options.cuda;
  check.behind_barriers = options.sync == Sync::own;
  const std::string sync = to_string(options.sync);
  if (!check.cuda) {
    std::vector<NamedMpi> mpis = {{find_mpi(""), ""}};
    for (const std::string& which : options.mpis) mpis.push_back({find_mpi(which), "@" + which});
    add_loops(check, options, here);
    for (const NamedMpi& named : mpis) {
      add_loops_of_mpi(check, options, here, named, mpis);
      const char* columns = "raw:mpi";
      if (named.which.empty())
        columns = named.mpi.flavour.empty() ? "native,raw:gloo" : "native,raw:gloo,raw:mpi";
      add_bench(check, options, named.mpi, named.which, {"--sync", sync, "-B", columns});
    }
    return check;
  }
  if (check.behind_barriers || !options.mpis.empty())
    throw InvalidArgument("--cross-check: no --mpi and no --sync own with --device cuda");
  require_a_gpu();
  check.ranks = std::clamp(cuda::device_count(), 1, kMostGpus);
  for (const std::string& python : options.pythons)
    add_loop(check, options, "torch:nccl", "nccl", kAtMostTwice, check.ranks,
             {python, here / "torch_loop.py"}, {"--device", "cuda"});
  add_bench(check, options, {}, "", {"--device", "cuda", "--cache", "hot", "-B", "nccl"});
  return check;
}

struct Outcome {
  std::string problem;  // empty: it ended well
  int signal = 0;       // ended it from outside
};

// `take` gets the lines that rank 0 prints.
template <class Take>
Outcome run_program(LaunchOptions options, Take&& take) try {
  std::string complaint;
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  options.timeout = std::chrono::minutes(10);  // hung, not slow
  options.on_line = [&](int rank, bool is_stderr, std::string_view line) {
    if (is_stderr)
      complaint = line;
    else if (rank == 0)
      take(line);
  };
  const LaunchResult ended = launch(options);
  if (ended.exit_code == 0 && ended.forwarded_signal == 0) return {};
  return {fmt::format("exit code {}: {}", ended.exit_code, complaint), ended.forwarded_signal};
} catch (const InvalidArgument& error) {  // no such program
  return {error.what()};
}

int run_loop(Loop& loop) {
  if (!loop.problem.empty()) return 0;
  const std::size_t before = loop.us.size();
  bool of_all_ranks = true;
  const Outcome ended = run_program(loop.start, [&](std::string_view line) {
    if (line.starts_with("PyTorch ")) loop.about = line;
    // Intel's program says for how many ranks the next table is.
    if (line.find("#processes = ") != line.npos)
      of_all_ranks = line.find(fmt::format("= {} ", kRanks)) != line.npos;
    const auto found = loop.column_of_table == 0 ? parse_loop_line(line)
                                                 : parse_table_row(line, loop.column_of_table);
    if (found && of_all_ranks && std::ranges::find(kSizes, found->first) != std::end(kSizes))
      loop.us[found->first].push_back(found->second);
  });
  loop.problem = ended.problem;
  if (loop.problem.empty() && before == 0 && loop.us.empty())
    loop.problem = fmt::format("no times of {} ranks; is it built for this mpirun?", kRanks);
  return ended.signal;
}

Outcome run_bench(CrossCheck& check, const Bench& bench) {
  std::map<std::pair<std::string, std::uint64_t>, std::vector<double>> blocks;
  Outcome ended = run_program(bench.start, [&](std::string_view line) {
    const Json record = Json::parse(line, nullptr, false);
    if (record.is_discarded() || record.value("t", "") != "cell") return;
    const std::string column = record.at("backend").get<std::string>() + bench.which;
    blocks[{column, record.at("bytes")}].push_back(record.at("us").at("p50"));
  });
  for (auto& [cell, us] : blocks)
    check.columns[cell.first][cell.second].push_back(median(std::move(us)));
  return ended;
}

struct Verdicts {
  int rows = 0;
  int outside = 0;
};

// `width`: of the first column of the table.
void print_loop(const Loop& loop, const Times& column, std::size_t width, Verdicts& verdicts) {
  const std::string row = fmt::format("{:<{}}{:<12}", loop.column, width, loop.what);
  if (!loop.problem.empty() || column.empty()) {
    fmt::print("{}skipped: {}\n", row,
               loop.problem.empty() ? "the benchmark has no times of it here" : loop.problem);
    return;
  }
  for (const auto& [size, us] : loop.us) {
    const auto bench = column.find(size);
    if (bench == column.end()) continue;
    const Ratio ratio = ratio_of_launches(bench->second, us);
    const double printed = std::round(ratio.middle * 1000) / 1000;
    const bool inside = printed >= loop.bounds.low && printed <= loop.bounds.high;
    ++verdicts.rows;
    verdicts.outside += inside ? 0 : 1;
    fmt::print("{}{:>8}{:>10}{:>10}  {:<21} {} {:.3f} to {:.3f}\n", row, bytes_text(size),
               microseconds_text(median(bench->second)), microseconds_text(median(us)),
               fmt::format("{:.3f} [{:.3f}, {:.3f}]", printed, ratio.least, ratio.most),
               inside ? "within" : "OUTSIDE", loop.bounds.low, loop.bounds.high);
  }
}

// Every program once. Returns an exit code, 0 to go on.
int run_launch(CrossCheck& check, const std::vector<std::size_t>& order) {
  for (const std::size_t i : order) {
    if (i < check.loops.size()) {
      if (const int signal = run_loop(check.loops[i])) return 128 + signal;
      continue;
    }
    Bench& bench = check.benches[i - check.loops.size()];
    if (!bench.problem.empty()) continue;
    const Outcome ended = run_bench(check, bench);
    if (ended.signal != 0) return 128 + ended.signal;
    bench.problem = ended.problem;
  }
  return 0;
}

// Returns the exit code.
int print_all(const CrossCheck& check, int launches) {
  std::size_t width = 0;
  for (const Loop& loop : check.loops) width = std::max(width, loop.column.size() + 2);
  fmt::print(
      "all_reduce f32 sum, {} rank{}{}, {} launch{}{}; us: p50 of the slowest rank, median of the "
      "launches\nratio: bench / loop in each launch: median [least, most]\n\n"
      "{:<{}}{:<12}{:>8}{:>10}{:>10}  {}\n",
      check.ranks, check.ranks == 1 ? "" : "s", check.cuda ? " on GPUs" : "", launches,
      launches == 1 ? "" : "es",
      check.behind_barriers ? ", each op after a barrier of its library" : "", "column", width,
      "against", "S", "bench us", "loop us", "ratio");
  Verdicts verdicts;
  bool failed = false;
  for (const Loop& loop : check.loops) {
    const auto column = check.columns.find(loop.column);
    print_loop(loop, column == check.columns.end() ? Times{} : column->second, width, verdicts);
    failed = failed || (!loop.problem.empty() && !loop.absent && !is_of_pytorch(loop));
  }
  for (const Bench& bench : check.benches) {
    if (bench.problem.empty()) continue;
    failed = true;
    fmt::print("c10d-bench run{}{}: {}\n", bench.which.empty() ? "" : " -B raw:mpi", bench.which,
               bench.problem);
  }
  for (const Loop& loop : check.loops)
    if (!loop.about.empty()) fmt::print("\nbeside {}: {}\n", loop.column, loop.about);
  fmt::print("\n{} of {} rows outside: there the benchmark and the loop disagree\n",
             verdicts.outside, verdicts.rows);
  if (verdicts.outside > 0 || failed) return 1;
  return verdicts.rows == 0 ? kNothingRan : 0;
}

}  // namespace

std::optional<std::pair<std::uint64_t, double>> parse_loop_line(std::string_view line) {
  std::uint64_t bytes = 0;
  double us = 0;
  const char* const end = line.data() + line.size();
  const auto [space, no_size] = std::from_chars(line.data(), end, bytes);
  if (no_size != std::errc() || space == end || *space != ' ') return {};
  const auto [rest, no_time] = std::from_chars(space + 1, end, us);
  if (no_time != std::errc() || rest != end || !(us > 0)) return {};
  return std::pair(bytes, us);
}

std::optional<std::pair<std::uint64_t, double>> parse_table_row(std::string_view line, int column) {
  std::istringstream words{std::string(line)};
  std::uint64_t bytes = 0;
  double us = 0;
  if (!(words >> bytes)) return {};
  for (int i = 0; i < column; ++i)
    if (!(words >> us)) return {};
  if (!(us > 0)) return {};
  return std::pair(bytes, us);
}

Ratio ratio_of_launches(const std::vector<double>& us, const std::vector<double>& base) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(us.size(), base.size()); ++i)
    ratios.push_back(us[i] / base[i]);
  const auto [least, most] = std::ranges::minmax(ratios);
  return {median(std::move(ratios)), least, most};
}

int run_cross_check(const CrossCheckOptions& options) {
  const std::optional<std::string> other = other_work();  // before any of this one's
  CrossCheck check = make(options);
  std::mt19937_64 random(kSeed);
  std::vector<std::size_t> order(check.loops.size() + check.benches.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int number = 1; number <= options.launches; ++number) {
    fmt::print(stderr, "cross-check: launch {} of {}\n", number, options.launches);
    std::shuffle(order.begin(), order.end(), random);
    if (const int code = run_launch(check, order)) return code;
  }
  const int code = print_all(check, options.launches);
  if (other) fmt::print("W002 {} before the first launch; repeat when idle\n", *other);
  return code;
}

}  // namespace c10d::bench
