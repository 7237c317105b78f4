// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/session.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <random>

#include "bench/analyse/warnings.h"
#include "bench/measure/case_list.h"
#include "bench/measure/machine.h"
#include "bench/model/bandwidth.h"
#include "bench/model/exit_code.h"
#include "bench/rank/rank.h"
#include "bench/report/banner.h"
#include "bench/report/csv.h"
#include "bench/report/html.h"
#include "bench/report/table.h"
#include "bench/text/format.h"
#include "bench/text/output_file.h"
#include "c10d/capability.h"
#include "c10d/env.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

Json record_of(const RunOptions& options, int ranks, const std::string& launcher) {
  Json run = run_record(options.compare ? "compare" : "run", options.argv, options.measurement.seed,
                        ranks, launcher, options.backends.names);
  for (const ProcessSet& set : options.sets)
    if (options.sets.size() > 1)
      run["sets"].push_back({{"name", set.name()},
                             {"side", set.build.side},
                             {"program", set.build.program},
                             {"environment", set.build.environment},
                             {"backends", set.backends}});
  run["device"] = options.cases.cuda ? "cuda" : "cpu";
  run["graph_ops"] = options.measurement.graph_ops;
  run["launches"] = options.launches;
  run["sync"] = to_string(options.measurement.sync);
  run["start_skew_us"] = options.measurement.start_skew * 1e6;
  run["busy"] = options.measurement.busy;
  run["equiv"] = options.verdicts.equiv;
  run["min_effect"] = options.verdicts.min_effect;
  run["conv"] = {
      {"GB", "1e9 bytes"},
      {"K", "2^10 bytes"},
      {"S", "as nccl-tests"},
      {"time",
       "slowest rank per iteration; send: half a round trip; isend: per message; on GPUs "
       "a batch of ops between two events, per op"}};
  return run;
}

}  // namespace

Json run_record(const std::string& command, const std::vector<std::string>& argv,
                std::uint64_t seed, int ranks, const std::string& launcher,
                const std::vector<std::string>& backends) {
  Json run = {{"v", 1}, {"t", "run"}};
  run["id"] = fmt::format("{:04x}", std::random_device{}() & 0xFFFFU);
  run["tool"] = fmt::format("c10d-bench {}", kVersion);
  run["commit"] = *commit() == '\0' ? Json(nullptr) : Json(commit());
  run["argv"] = argv;
  run["command"] = command;
  run["seed"] = seed;
  run["world"] = ranks;
  run["launcher"] = launcher;
  if (const auto line = env("C10D_LAUNCH_LINE")) run["launch_line"] = *line;
  run["backends"] = backends;
  run["start"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return run;
}

Json end_record(int exit_code, bool complete, std::size_t cells, std::size_t skipped) {
  return {{"v", 1},
          {"t", "end"},
          {"ok", exit_code == 0},
          {"complete", complete},
          {"exit", exit_code},
          {"cells", cells},
          {"skipped", skipped}};
}

Session::Session(const RunOptions& options, int ranks, int ranks_here, std::size_t cases,
                 const std::string& launcher)
    : options_(options),
      launches_planned_(options.launches),
      json_(open_output("--json", options.output.json)),
      progress_(options.output.quiet ? Switch::off : options.output.progress,
                cases * options.backends.names.size() *
                    static_cast<std::uint64_t>(options.measurement.blocks) *
                    static_cast<std::uint64_t>(options.launches)) {
  // Written at the end; a path that cannot be must not cost a whole run.
  for (const auto& [path, option] :
       {std::pair(options.output.csv, "--csv"), std::pair(options.output.markdown, "--md"),
        std::pair(options.output.report, "--report")})
    if (!path.empty()) write_file(option, path, "");
  if (!options_.output.svg.empty()) make_folder("--svg", options_.output.svg);
  take(record_of(options, ranks, launcher));
  if (!options.compare && (options.verdicts.control == Control::solo ||
                           options.verdicts.equiv != VerdictOptions().equiv))
    warn("W008", "--control and --equiv: run compares nothing; take compare");
  if (const auto work = other_work()) warn("W002", *work);
  if (const auto granted = cgroup_cpus(); granted && *granted < ranks_here)
    warn("W009", fmt::format("the control group grants {:.1f} CPUs to {} ranks: they are throttled",
                             *granted, ranks_here));
}

void Session::write(const Json& line) {
  if (!json_) return;
  const std::string text = line_text(line) + "\n";
  if (std::fputs(text.c_str(), json_.get()) < 0 || std::fflush(json_.get()) != 0)
    if (json_error_ == 0) json_error_ = errno;
}

void Session::take(const Json& line) {
  const std::lock_guard lock(mutex_);
  if (!ended_) add(line);
}

void Session::add(const Json& line) {
  results_.add(line);
  const std::string kind = line.at("t").get<std::string>();
  if (kind == kLaunchDone) {
    ++launches_done_;
    return;
  }
  if (kind == "cell") {
    const CellRecord& cell = results_.cells.back();
    if (options_.output.verbose && options_.sets.size() < 2) tell(cell);  // else the sets do
    if (is_control(cell.backend)) return;  // its verdict is a ctl record
    write(to_json(cell, false));
    if (options_.output.raw) write(sample_json(cell));
    progress_.advance(fmt::format("{} {} | launch {}/{} | {} {} us", cell.key.op,
                                  bytes_text(cell.key.bytes), cell.launch + 1, options_.launches,
                                  cell.backend, microseconds_text(cell.us.p50)));
    return;
  }
  if (kind == "skip") {
    const SkipRecord& skip = results_.skips.back();
    progress_.advance(fmt::format("{} {} skip", skip.key.op, skip.backend),
                      static_cast<std::uint64_t>(options_.measurement.blocks));
    for (std::size_t i = 0; i + 1 < results_.skips.size(); ++i)  // said once, not in every launch
      if (results_.skips[i].key == skip.key && results_.skips[i].backend == skip.backend) return;
  }
  write(line);
}

std::vector<std::string> Session::measured_backends() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const std::string& name : options_.backends.names)
    if (std::any_of(results_.cells.begin(), results_.cells.end(),
                    [&](const CellRecord& cell) { return cell.backend == name; }))
      names.push_back(name);
  return names;
}

void Session::tell(const CellRecord& cell) {
  progress_.erase();
  fmt::print(stderr, "launch {} block {} {} {} {}: p50 {} us, {} iterations\n", cell.launch + 1,
             cell.block + 1, cell.backend, cell.key.op, bytes_text(cell.key.bytes),
             microseconds_text(cell.us.p50), cell.iters);
}

void Session::show(std::string_view line) {
  const std::lock_guard lock(mutex_);
  progress_.erase();
  fmt::print(stderr, "{}\n", line);
}

void Session::warn(const char* code, const std::string& text) {
  take(to_json(WarnRecord{code, text}));
}

int Session::verdict_code(int exit_code, const Summary& summary) const {
  if (summary.wrong > 0) return 3;
  if (exit_code != 0) return exit_code;
  if (summary.measured == 0) return kNothingRan;
  const bool noisy = !summary.warnings.empty();
  return options_.verdicts.strict && noisy ? kNoisy : 0;
}

int Session::finish(int exit_code) {
  const std::lock_guard lock(mutex_);
  if (!ended_) {
    ended_ = exit_code;
    ended_ = end(exit_code);
  }
  return *ended_;
}

int Session::end(int exit_code) {
  progress_.erase();
  results_.complete = launches_done_ >= launches_planned_;
  const bool compare = options_.compare;
  const Summary first =
      summarise(results_, false, options_.verdicts.equiv, options_.verdicts.min_effect);
  for (const WarnRecord& found : findings(results_, first, options_.verdicts.min_effect))
    add(to_json(found));
  const Summary summary =
      summarise(results_, compare, options_.verdicts.equiv, options_.verdicts.min_effect);
  exit_code = verdict_code(exit_code, summary);
  for (const CompareRecord& record : summary.compares) write(to_json(record));
  for (const OpTable& table : summary.tables)
    for (const FitRecord& record : table.fits) write(to_json(record));
  for (const ControlRecord& record : summary.controls) write(to_json(record));
  write(end_record(exit_code, results_.complete, summary.measured, summary.skipped));
  json_.reset();
  print(summary, exit_code);
  write_files(summary);
  if (json_error_ == 0) return exit_code;
  fmt::print(stderr, "c10d-bench: --json {}: {}\n", options_.output.json,
             std::strerror(json_error_));
  return exit_code == 0 ? 2 : exit_code;
}

void Session::print(const Summary& summary, int exit_code) {
  std::FILE* out = options_.output.json == "-" ? stderr : stdout;
  const int fd = fileno(out);
  TableStyle style;
  style.width = terminal_width(fd, 180);
  style.color = use_color(options_.output.color, fd);
  style.compare = options_.compare;
  style.columns = options_.output.columns;
  style.fits = options_.output.verbose;
  const Detail detail = options_.output.verbose ? Detail::full : Detail::brief;
  std::string text;
  if (!options_.output.quiet) text += header_text(results_, summary, detail, style.width);
  text += text_tables(summary, style);
  if (!options_.output.quiet) {
    std::string footer =
        footer_text(results_, summary, detail, exit_code, options_.output.json, style.width);
    if (const std::string note = rounding_note(options_.cases, summary.ranks); !note.empty())
      footer += fmt::format("{}note   {}\n", footer.empty() ? "\n" : "", note);
    text += footer;
  }
  if (options_.output.quiet && exit_code == kNothingRan)
    for (const std::string& note : skip_notes(summary)) text += fmt::format("skip   {}\n", note);
  if (ascii_only()) text = to_ascii(text);
  std::fputs(text.c_str(), out);
  std::fflush(out);
}

void Session::write_files(const Summary& summary) {
  if (!options_.output.csv.empty())
    write_file("--csv", options_.output.csv, csv_text(results_.cells));
  if (!options_.output.markdown.empty()) {
    TableStyle style;
    style.compare = options_.compare;
    style.columns = options_.output.columns;
    write_file("--md", options_.output.markdown, markdown_tables(summary, style));
  }
  if (!options_.output.report.empty())
    write_file("--report", options_.output.report, html_report(results_, summary));
  if (!options_.output.svg.empty()) write_figures(options_.output.svg, summary);
}

}  // namespace c10d::bench
