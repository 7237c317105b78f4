// SPDX-License-Identifier: BSD-3-Clause
#include "bench/session.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <random>
#include <set>

#include "bench/bandwidth.h"
#include "bench/csv.h"
#include "bench/environment.h"
#include "bench/format.h"
#include "bench/header.h"
#include "bench/report.h"
#include "bench/table.h"
#include "bench/worker.h"
#include "c10d/error.h"
#include "c10d/version.h"

namespace c10d::bench {
namespace {

int keep_open(std::FILE*) { return 0; }

std::unique_ptr<std::FILE, int (*)(std::FILE*)> open_json(const std::string& path) {
  if (path.empty()) return {nullptr, keep_open};
  if (path == "-") return {stdout, keep_open};
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    throw InvalidArgument(fmt::format("--json {}: {}", path, std::strerror(errno)));
  return {file, std::fclose};
}

Json run_record(const Options& options, int ranks, const std::string& launcher) {
  Json run;
  run["v"] = 1;
  run["t"] = "run";
  run["id"] = fmt::format("{:04x}", std::random_device{}() & 0xFFFFU);
  run["tool"] = fmt::format("c10d-bench {}", kVersion);
  run["argv"] = options.argv;
  run["command"] = options.command == Command::compare ? "compare" : "run";
  run["seed"] = options.seed;
  run["world"] = ranks;
  run["hosts"] = 1;
  run["launcher"] = launcher;
  run["backends"] = options.backends;
  run["start"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  run["conv"] = {
      {"GB", "1e9 bytes"},
      {"K", "2^10 bytes"},
      {"S", "as nccl-tests"},
      {"time", "slowest rank per iteration; send: half a round trip; isend: per message"}};
  return run;
}

void write_text(const std::string& path, const std::string& text, const char* option) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw InvalidArgument(fmt::format("{} {}: cannot be written", option, path));
}

}  // namespace

Session::Session(const Options& options, int ranks, std::size_t cases, const std::string& launcher)
    : options_(options),
      json_(open_json(options.json)),
      progress_(options.quiet ? Switch::off : options.progress,
                cases * options.backends.size() * static_cast<std::uint64_t>(options.blocks) *
                    static_cast<std::uint64_t>(options.launches)) {
  // Written at the end; a path that cannot be must not cost a whole run.
  for (const auto& [path, option] :
       {std::pair(options.csv, "--csv"), std::pair(options.markdown, "--md"),
        std::pair(options.report, "--report")})
    if (!path.empty()) write_text(path, "", option);
  take(run_record(options, ranks, launcher));
  if (ranks > allowed_cpus())
    warn("W001", fmt::format("{} ranks on {} CPUs: times include waiting for a CPU, and are those "
                             "of bursts, up to {} ops between two meetings",
                             ranks, allowed_cpus(), burst_of(0)));
  if (const double load = load_average(); load > 0.3 * allowed_cpus())
    warn("W002", fmt::format("other work runs here: load {:.1f} on {} CPUs", load, allowed_cpus()));
}

void Session::write(const Json& line) {
  if (!json_) return;
  std::fputs((line.dump() + "\n").c_str(), json_.get());
  std::fflush(json_.get());
}

void Session::take(const Json& line) {
  const std::lock_guard lock(mutex_);
  results_.add(line);
  const std::string kind = line.at("t").get<std::string>();
  if (kind == kLaunchDone) {
    ++launches_done_;
    return;
  }
  if (kind == "cell") {
    const CellRecord& cell = results_.cells.back();
    if (cell.backend.ends_with(kControlSuffix)) return;  // its verdict is a ctl record
    write(to_json(cell, false));
    if (options_.raw) write(sample_json(cell));
    progress_.advance(fmt::format("{} {} | launch {}/{} | {} {} us", cell.key.op,
                                  bytes_text(cell.key.bytes), cell.launch + 1, options_.launches,
                                  cell.backend, microseconds_text(cell.us.p50)));
    return;
  }
  if (kind == "skip") {
    const SkipRecord& skip = results_.skips.back();
    progress_.advance(fmt::format("{} {} skip", skip.key.op, skip.backend),
                      static_cast<std::uint64_t>(options_.blocks));
    for (std::size_t i = 0; i + 1 < results_.skips.size(); ++i)  // said once, not in every launch
      if (results_.skips[i].key == skip.key && results_.skips[i].backend == skip.backend) return;
  }
  write(line);
}

void Session::show(std::string_view line) {
  const std::lock_guard lock(mutex_);
  progress_.erase();
  fmt::print(stderr, "{}\n", line);
}

void Session::warn(const char* code, const std::string& text) {
  take(to_json(WarnRecord{code, text}));
}

void Session::look_for_noise(const Summary& summary) {
  std::set<std::string> buckets;
  for (const CellRecord& cell : results_.cells)
    if (cell.rtt) buckets.insert(cell.rtt->bucket);
  if (buckets.size() > 1)
    warn("W006",
         "the round trip between ranks 0 and 1 changed: blocks are compared only where it was "
         "alike");
  for (const ControlRecord& control : summary.controls)
    if (!control.ok)
      warn("W007", fmt::format("noisy: {} against itself is {} [{}, {}]", control.backend,
                               ratio_text(control.ratio.value), ratio_text(control.ratio.ci95->low),
                               ratio_text(control.ratio.ci95->high)));
}

// A mean may be rounded in more than one way; everything else has one right result.
void Session::check_hashes() {
  std::map<CellKey, std::set<std::string>> hashes;
  for (const CellRecord& cell : results_.cells)
    if (!cell.hash.empty() && cell.key.redop != "avg") hashes[cell.key].insert(cell.hash);
  for (const auto& [key, set] : hashes)
    if (set.size() > 1)
      warn("W005", fmt::format("{} {}: results differ between backends or launches", key.op,
                               bytes_text(key.bytes)));
}

int Session::verdict_code(int exit_code, const Summary& summary) const {
  if (summary.wrong > 0) return 3;
  if (exit_code != 0) return exit_code;
  if (summary.measured == 0) return 77;
  const bool noisy = !summary.warnings.empty();
  return options_.strict && noisy ? 5 : 0;
}

int Session::finish(int exit_code) {
  progress_.erase();
  results_.complete = launches_done_ == options_.launches;
  const bool compare = options_.command == Command::compare;
  check_hashes();
  look_for_noise(summarise(results_, false, options_.equiv));
  const Summary summary = summarise(results_, compare, options_.equiv);
  exit_code = verdict_code(exit_code, summary);
  for (const CompareRecord& record : summary.compares) write(to_json(record));
  for (const ControlRecord& record : summary.controls) write(to_json(record));
  Json end;
  end["v"] = 1;
  end["t"] = "end";
  end["ok"] = exit_code == 0;
  end["complete"] = results_.complete;
  end["exit"] = exit_code;
  end["cells"] = summary.measured;
  end["skipped"] = summary.skipped;
  write(end);
  json_.reset();
  print(summary, exit_code);
  write_files(summary);
  return exit_code;
}

void Session::print(const Summary& summary, int exit_code) {
  std::FILE* out = options_.json == "-" ? stderr : stdout;
  const int fd = fileno(out);
  TableStyle style;
  style.width = terminal_width(fd, 180);
  style.color = use_color(options_.color, fd);
  style.ascii = ascii_only();
  style.compare = options_.command == Command::compare;
  style.columns = options_.columns;
  std::string text;
  if (!options_.quiet) text += header_text(results_, summary);
  text += text_tables(summary, style);
  if (!options_.quiet) text += footer_text(results_, summary, exit_code);
  if (style.ascii) text = to_ascii(text);
  std::fputs(text.c_str(), out);
  std::fflush(out);
}

void Session::write_files(const Summary& summary) {
  if (!options_.csv.empty()) {
    std::ofstream file(options_.csv);
    write_csv(results_.cells, file);
    if (!file.flush())
      throw InvalidArgument(fmt::format("--csv {}: cannot be written", options_.csv));
  }
  if (!options_.markdown.empty()) {
    TableStyle style;
    style.compare = options_.command == Command::compare;
    style.columns = options_.columns;
    write_text(options_.markdown, markdown_tables(summary, style), "--md");
  }
  if (!options_.report.empty())
    write_text(options_.report, html_report(results_, summary), "--report");
}

}  // namespace c10d::bench
