// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/replay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "bench/measure/machine.h"
#include "bench/model/exit_code.h"
#include "bench/model/job_record.h"
#include "bench/model/replay_plan.h"
#include "bench/model/stats.h"
#include "bench/run/mpirun.h"
#include "bench/run/record_pipe.h"
#include "bench/run/session.h"
#include "bench/text/format.h"
#include "bench/text/output_file.h"
#include "c10d/capability.h"
#include "c10d/error.h"
#include "c10d/launch.h"

namespace c10d::bench {
namespace {

constexpr double kEquivalent = 0.02;
constexpr double kLongestTurn = 3600;  // seconds
constexpr std::size_t kWidest = 32;    // name of a group
constexpr std::size_t kMostRows = 64;  // of a list of ops on the screen

bool is_process(const std::string& source) {
  std::error_code none;
  return !source.empty() && source.size() < 10 && !std::filesystem::exists(source, none) &&
         std::all_of(source.begin(), source.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::filesystem::path own_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

// The groups of a running process and of all below it.
JobRecord record_of_process(const std::string& pid) {
  std::string text, complaint;
  LaunchOptions look;
  look.command = {own_folder() / "c10d-info", "--pid", pid, "--json", "--last", "1024"};
  look.timeout = std::chrono::seconds(60);
  look.on_line = [&](int, bool is_stderr, std::string_view line) {
    std::string& to = is_stderr ? complaint : text;
    if (to.size() < kMostRecordBytes) to.append(line).append("\n");
  };
  if (launch(look).exit_code != 0)
    throw InvalidArgument(fmt::format("process {}: {}", pid, complaint));
  return parse_job_record(text, "process " + pid);
}

JobRecord record_of(const std::string& source) {
  return is_process(source) ? record_of_process(source) : read_job_record(source);
}

// Memory without a name, which the ranks open by its path, also as children of a launcher.
class NamelessFile {
 public:
  explicit NamelessFile(std::string_view text) : fd_(memfd_create("c10d-replay", MFD_CLOEXEC)) {
    while (fd_ >= 0 && !text.empty()) {
      const ssize_t written = write(fd_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    if (fd_ < 0 || !text.empty())
      throw_failure({.code = Code::out_of_resources,
                     .message = fmt::format("no memory for a record: {}", std::strerror(errno))});
  }
  ~NamelessFile() { close(fd_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

 private:
  int fd_;
};

// The JSON lines of --json.
class Output {
 public:
  explicit Output(const std::string& path) : path_(path), file_(open_output("--json", path)) {}
  void write(const Json& line) {
    if (!file_) return;
    const std::string text = line_text(line) + "\n";
    if (std::fputs(text.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0)
      throw InvalidArgument(fmt::format("--json {}: {}", path_, std::strerror(errno)));
  }
  // Where tables go.
  std::FILE* tables() const { return path_ == "-" ? stderr : stdout; }

 private:
  std::string path_;
  OutputFile file_;
};

// What the turns of all launches said.
struct Measured {
  std::map<std::string, std::vector<std::vector<double>>> comm;  // ms, by backend, launch, block
  std::map<std::string, std::vector<std::vector<double>>> ops;   // us, by backend and op of a step
  std::map<std::string, std::uint64_t> wrong;
  std::map<std::string, std::string> reasons;  // of backends that did not run
};

void take(const Json& line, Measured& measured) {
  const auto backend = line.at("backend").get<std::string>();
  if (line.at("t") == "skip") {
    measured.reasons[backend] = line.at("reason").get<std::string>();
    return;
  }
  auto& launches = measured.comm[backend];
  launches.resize(std::max(launches.size(), line.at("launch").get<std::size_t>() + 1));
  launches.back().push_back(line.at("comm_us").at("p50").get<double>() / 1e3);
  auto& ops = measured.ops[backend];
  const Json& of_turn = line.at("ops_us");
  ops.resize(of_turn.size());
  for (std::size_t i = 0; i < of_turn.size(); ++i) ops[i].push_back(of_turn[i].get<double>());
  measured.wrong[backend] += line.at("wrong").get<std::uint64_t>();
}

Json run_json(const ReplayPlan& plan, const ReplayCommand& command,
              const std::vector<std::string>& argv) {
  Json run = run_record("replay", argv, command.how.seed, plan.ranks, "c10d", command.how.backends);
  run["launches"] = command.launches;
  run["equiv"] = kEquivalent;
  run["conv"] = {{"K", "2^10 bytes"},
                 {"S", "as nccl-tests"},
                 {"time", "of an op: from the last rank's start to the last rank's end"},
                 {"compute", to_string(command.how.compute)}};
  return run;
}

// An op of a step, over all steps of the record.
Json op_json(const ReplayPlan& plan, std::size_t index) {
  const ReplayOp& op = plan.ops[index];
  const bool has_data = op.as_case.op != BenchOp::barrier;
  const auto rank = static_cast<std::size_t>(op.as_case.end ? op.as_case.end->rank() : 0);
  std::vector<double> gaps, times, held;
  for (std::size_t i = index; i < plan.ops.size(); i += plan.ops_per_step) {
    gaps.push_back(plan.ops[i].gaps[rank] * 1e6);
    const Span common = common_span(plan.ops[i].spans);
    times.push_back((common.end - common.start) * 1e6);
    if (const auto& ready = plan.ops[i].ready[rank])
      held.push_back((plan.ops[i].spans[rank].start - *ready) * 1e6);
  }
  Json line = {{"v", 1}, {"t", "replay_op"}, {"index", index}, {"group", plan.groups[op.group]}};
  line["op"] = facts_of(op.as_case.op).name;
  line["call"] = text_of(op.call);
  line["bytes"] = op.as_case.bytes;
  line["dtype"] = has_data ? Json(to_string(op.as_case.dtype)) : Json(nullptr);
  line["redop"] = is_reduction(op.call.kind) ? Json(to_string(op.call.redop)) : Json(nullptr);
  line["root"] = facts_of(op.as_case.op).rooted ? Json(op.as_case.root) : Json(nullptr);
  line["async"] = op.joined_before.has_value();
  line["gap_us"] = median(std::move(gaps));
  line["held_us"] = held.empty() ? Json(nullptr) : Json(median(std::move(held)));
  line["us"] = median(std::move(times));
  return line;
}

std::string bytes_per_step(const ReplayPlan& plan) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < plan.ops_per_step; ++i) {
    const auto& end = plan.ops[i].as_case.end;
    if (!end || end->sends) bytes += plan.ops[i].as_case.bytes;
  }
  return bytes_text(bytes);
}

void print_head(std::FILE* out, const ReplayPlan& plan, const std::string& source) {
  fmt::print(out, "record   {}: {} ranks, {} step{} of {} ops, {} a step\n", source, plan.ranks,
             plan.steps(), plan.steps() == 1 ? "" : "s", plan.ops_per_step, bytes_per_step(plan));
  if (!plan.has_steps)
    fmt::print(out, "note     the ops do not repeat: all of them count as one step\n");
  for (const std::string& note : plan.notes) fmt::print(out, "note     {}\n", note);
}

void print_ops(std::FILE* out, const ReplayPlan& plan, const Measured& measured,
               const std::vector<std::string>& backends) {
  const std::size_t rows = std::min(plan.ops_per_step, kMostRows);
  std::size_t width = 5;  // of the names of groups
  for (const std::string& name : plan.groups)
    width = std::max(width, std::min(name.size(), kWidest));
  fmt::print(out, "\n{:>4} {:<{}} {:<36} {:>9} {:>11} {:>11} {:>11}", "op", "group", width, "call",
             "S", "gap us", "held us", "recorded us");
  for (const std::string& name : backends) fmt::print(out, " {:>11}", name + " us");
  fmt::print(out, "\n");
  for (std::size_t i = 0; i < rows; ++i) {
    const Json op = op_json(plan, i);
    fmt::print(out, "{:>4} {:<{}} {:<36} {:>9} {:>11} {:>11} {:>11}", i,
               op["group"].get<std::string>().substr(0, kWidest), width,
               op["call"].get<std::string>() + (op["async"].get<bool>() ? " async" : ""),
               bytes_text(op["bytes"].get<std::uint64_t>()),
               microseconds_text(op["gap_us"].get<double>()),
               op["held_us"].is_null() ? "-" : microseconds_text(op["held_us"].get<double>()),
               microseconds_text(op["us"].get<double>()));
    for (const std::string& name : backends) {
      const auto found = measured.ops.find(name);
      fmt::print(out, " {:>11}",
                 found == measured.ops.end() ? "-" : microseconds_text(median(found->second[i])));
    }
    fmt::print(out, "\n");
  }
  if (rows < plan.ops_per_step)
    fmt::print(out, "     and {} ops more; --json has all\n", plan.ops_per_step - rows);
}

// Blocks of the same number, in the same launch: they ran one after the other.
Estimate ratio_of(const std::vector<std::vector<double>>& other,
                  const std::vector<std::vector<double>>& base, std::uint64_t seed) {
  std::vector<std::vector<double>> ratios;
  for (std::size_t launch = 0; launch < std::min(other.size(), base.size()); ++launch) {
    std::vector<double> blocks;
    for (std::size_t i = 0; i < std::min(other[launch].size(), base[launch].size()); ++i)
      if (base[launch][i] > 0) blocks.push_back(other[launch][i] / base[launch][i]);
    if (!blocks.empty()) ratios.push_back(std::move(blocks));
  }
  return ratios.empty() ? Estimate{} : bootstrap(ratios, seed);
}

std::string interval_text(const Estimate& ms) {
  return ms.ci95 ? fmt::format("{:.3f} [{:.3f}, {:.3f}]", ms.value, ms.ci95->low, ms.ci95->high)
                 : fmt::format("{:.3f}", ms.value);
}

Json compare_json(const Estimate& ratio, const ReplayPlan& plan, const std::string& base,
                  const std::string& other) {
  CompareRecord record;
  record.key.op = "replay";
  record.key.place = "out";
  for (std::size_t i = 0; i < plan.ops_per_step; ++i) record.key.bytes += plan.ops[i].as_case.bytes;
  record.base = base;
  record.other = other;
  record.ratio = ratio;
  record.verdict = verdict(ratio, kEquivalent);
  return to_json(record);
}

void print_backends(Output& output, const ReplayPlan& plan, const Measured& measured,
                    const ReplayCommand& command) {
  std::FILE* const out = output.tables();
  const std::vector<double> recorded = communication_by_step(plan, recorded_spans(plan));
  fmt::print(out, "\n{:<10} {:>32} {:>28} {:<10} {:>6}\n", "", "communication, ms/step [95 % CI]",
             "ratio [95 % CI]", " verdict", "#wrong");
  fmt::print(out, "{:<10} {:>32}\n", "recorded", fmt::format("{:.3f}", median(recorded) * 1e3));
  const std::string* base = nullptr;
  for (const std::string& name : command.how.backends) {
    const auto found = measured.comm.find(name);
    if (found == measured.comm.end()) {
      const auto why = measured.reasons.find(name);
      fmt::print(out, "{:<10} skipped: {}\n", name,
                 why == measured.reasons.end() ? "it did not come to a turn" : why->second);
      continue;
    }
    const std::string times = interval_text(bootstrap(found->second, command.how.seed));
    std::string ratio_column = "-", verdict_column;
    if (base != nullptr) {
      const Estimate ratio = ratio_of(found->second, measured.comm.at(*base), command.how.seed);
      if (ratio.value > 0) {
        ratio_column = ratio_text(ratio);
        verdict_column = to_string(verdict(ratio, kEquivalent));
        output.write(compare_json(ratio, plan, *base, name));
      }
    } else {
      base = &name;
    }
    fmt::print(out, "{:<10} {:>32} {:>28}  {:<10} {:>5}\n", name, times, ratio_column,
               verdict_column, measured.wrong.at(name));
  }
}

// One set of fresh processes, to its end. `record` is its file's path; the lines of rank 0 are put
// into `lines`.
int run_launch(const ReplayPlan& plan, const ReplayCommand& command,
               const std::vector<std::string>& argv, int number, const std::string& record,
               std::vector<Json>& lines) {
  auto pipe = std::make_unique<RecordPipe>(
      [&](const Json& line) { lines.push_back(line); },
      [](const std::string& text) { fmt::print(stderr, "{}\n", text); });
  const Mpi mpi = needs_mpirun(command.how.backends) ? find_mpi("") : Mpi{};
  LaunchOptions start = start_self(mpi, plan.ranks);
  start.command.insert(start.command.end(), argv.begin() + 1, argv.end());
  if (command.chose_backends)
    start.command.insert(start.command.end(),
                         {"-B", fmt::format("{}", fmt::join(command.how.backends, ","))});
  start.command.insert(start.command.end(),
                       {"--worker-launch", std::to_string(number), "--worker-record", record,
                        "--worker-results", pipe->path()});
  const double turns = static_cast<double>(command.how.backends.size()) *
                       (static_cast<double>(command.how.blocks) + 2);
  start.timeout = duration_of(120 + turns * (10 * replay_seconds(plan, command.how.compute) +
                                             3 * command.how.timeout + 60));
  start.on_line = [&](int rank, bool, std::string_view line) {
    print_rank_line(rank, true, line, mpi.flavour.empty());
  };
  const LaunchResult result = launch(start);
  pipe.reset();  // every line has been taken
  return result.forwarded_signal != 0 ? 128 + result.forwarded_signal : result.exit_code;
}

// The default: all that are available, native first.
void choose_backends(ReplayCommand& command) {
  const std::vector<BackendInfo> known = list_backends();
  command.chose_backends = command.how.backends.empty();
  if (command.chose_backends)
    for (const BackendInfo& info : known)
      if (info.available && !info.cuda_only && info.name.find(':') == std::string::npos)
        command.how.backends.push_back(info.name);
  for (const std::string& name : command.how.backends) {
    if (std::none_of(known.begin(), known.end(),
                     [&](const BackendInfo& info) { return info.name == name; }))
      throw InvalidArgument(fmt::format(
          "-B {}: no such backend; replay takes those of c10d-bench list backends", name));
    if (std::any_of(known.begin(), known.end(),
                    [&](const BackendInfo& info) { return info.name == name && info.cuda_only; }))
      throw InvalidArgument(
          fmt::format("-B {}: it serves memory of GPUs, and replay has buffers of the host", name));
  }
}

int run_as_rank(const ReplayCommand& command) {
  const ReplayPlan plan = last_steps(plan_replay(read_job_record(command.worker_record),
                                                 command.how.place, command.how.ops_per_step),
                                     command.how.steps);
  ReplayOptions how = command.how;
  how.launch = command.worker_launch;
  std::ofstream results;
  return run_replay_rank(plan, how, [&](const Json& line) {
    if (!results.is_open()) results.open(command.worker_results, std::ios::binary | std::ios::app);
    results << line_text(line) << std::endl;
  });
}

int replay(const ReplayPlan& plan, const JobRecord& record, const ReplayCommand& command,
           const std::vector<std::string>& argv, Output& output) {
  if (const double turn = replay_seconds(plan, command.how.compute); turn > kLongestTurn)
    throw InvalidArgument(fmt::format(
        "these {} steps took {} in the job, and would in every turn: take fewer with --steps, or "
        "leave out the pauses with --no-gaps",
        plan.steps(), seconds_text(turn)));
  const std::uint64_t each = replay_bytes(plan);
  refuse_beyond_memory(each * command.how.backends.size() * static_cast<std::uint64_t>(plan.ranks),
                       fmt::format("{} ranks x {} backends x {} of buffers", plan.ranks,
                                   command.how.backends.size(), bytes_text(each)),
                       "name fewer backends with -B");
  const NamelessFile record_file(to_text(record));
  Measured measured;
  int code = 0, done = 0;
  std::size_t turns = 0;
  // A backend that failed, or wrong data, is one thing; what else ends a launch would come again.
  const auto goes_on = [&code] { return code == 0 || code == 1 || code == 3; };
  for (int number = 0; number < command.launches && goes_on(); ++number) {
    std::vector<Json> lines;
    const int ended = run_launch(plan, command, argv, number, record_file.path(), lines);
    if (ended != 0 && code != 3) code = ended;  // wrong data counts for more
    for (const Json& line : lines) {
      take(line, measured);
      output.write(line);
      turns += line.at("t") == "replay" ? 1 : 0;
    }
    ++done;
  }
  const bool complete = done == command.launches && goes_on();
  print_ops(output.tables(), plan, measured, command.how.backends);
  print_backends(output, plan, measured, command);
  if (code == 0 && turns == 0) code = kNothingRan;
  output.write(end_record(code, complete, turns, measured.reasons.size()));
  return code;
}

}  // namespace

int run_replay(const ReplayCommand& asked, const std::vector<std::string>& argv) {
  ReplayCommand command = asked;
  command.how.compute = command.no_gaps               ? Compute::none
                        : command.compute == "beside" ? Compute::beside
                        : command.compute == "sleep"  ? Compute::sleep
                                                      : Compute::gaps;
  if (command.how.compute_seconds > 0 && command.how.compute != Compute::beside)
    throw InvalidArgument("--compute-time needs --compute beside");
  command.how.place = command.place == "in" ? Place::in : Place::out;
  command.how.heap = command.memory == "heap";
  std::set<std::string> seen;
  std::erase_if(command.how.backends,
                [&](const std::string& name) { return !seen.insert(name).second; });
  if (command.worker_launch >= 0) return run_as_rank(command);
  const JobRecord record = record_of(command.source);
  const ReplayPlan all = plan_replay(record, command.how.place, command.how.ops_per_step);
  Output output(command.json);
  if (!command.only_list) choose_backends(command);
  const ReplayPlan plan =
      command.only_list ? all : last_steps(all, std::max<std::size_t>(command.how.steps, 1));
  output.write(run_json(plan, command, argv));
  for (const std::string& note : plan.notes) output.write(to_json(WarnRecord{"W020", note}));
  for (std::size_t i = 0; i < plan.ops_per_step; ++i) output.write(op_json(plan, i));
  Json recorded = turn_json(plan, recorded_spans(plan));
  recorded["backend"] = "recorded";
  output.write(recorded);
  print_head(output.tables(), plan, command.source);
  if (!command.only_list) return replay(plan, record, command, argv, output);
  print_ops(output.tables(), plan, {}, {});
  const auto& comm = recorded["comm_us"];
  fmt::print(output.tables(),
             "\ncommunication {:.3f} ms a step: median of {} steps, from {:.3f} to {:.3f}\n",
             comm["p50"].get<double>() / 1e3, plan.steps(), comm["min"].get<double>() / 1e3,
             comm["max"].get<double>() / 1e3);
  output.write(end_record(0, true, 0, 0));
  return 0;
}

}  // namespace c10d::bench
