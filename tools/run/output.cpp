// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/output.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>

#include "c10d/env.h"
#include "c10d/launch.h"
#include "src/net/socket.h"
#include "tools/run/args.h"

namespace c10d { inline namespace v0 {
namespace {

bool selected(const std::map<int, Streams>& by_rank, int rank, bool is_stderr) {
  auto found = by_rank.find(rank);
  if (found == by_rank.end()) found = by_rank.find(-1);
  if (found == by_rank.end()) return false;
  return is_stderr ? found->second.err : found->second.out;
}

// "2026-11-26 08:12:15", of this place.
std::string local_time(std::chrono::system_clock::time_point now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const auto whole = std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch());
  return fmt::format("{}.{:03}", local_time(now), whole.count() % 1000);
}

std::string folder_for(const RunOptions& options) {
  if (!options.writes_files || !options.log_dir.empty()) return options.log_dir;
  std::string path = env("TMPDIR").value_or("/tmp") + "/c10d-run-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    throw std::runtime_error(fmt::format(
        "cannot make a folder {} for the output: {}; give --log-dir DIR", path, error_text(errno)));
  return path;
}

const char* name_of_stream(bool is_stderr) { return is_stderr ? "stderr" : "stdout"; }

}  // namespace

void LogFile::open(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  file_.open(path, std::ios::app | std::ios::ate);  // ate: mark() asks where it is
  if (!file_)
    throw std::runtime_error(fmt::format("cannot write {}: {}", path.string(),
                                         error ? error.message() : error_text(errno)));
}

void LogFile::mark(const std::string& text) {
  if (file_.is_open() && file_.tellp() > 0) file_ << text << std::endl;
}

bool LogFile::write(std::string_view line) {
  if (file_ << line << std::endl) return true;
  file_.close();
  return false;
}

RunOutput::RunOutput(const RunOptions& options) : options_(options), folder_(folder_for(options)) {
  for (const bool is_stderr : {false, true}) {
    if (!(is_stderr ? options.duplicates.err : options.duplicates.out).empty())
      filtered_[is_stderr ? 1 : 0].open(std::filesystem::path(folder_) /
                                        fmt::format("filtered_{}.log", name_of_stream(is_stderr)));
  }
  if (options.hosts.count > 1) return;
  for (int rank = 0; rank < options.ranks; ++rank)
    for (const bool is_stderr : {false, true}) target(rank, is_stderr);
}

bool RunOutput::takes_status() const {
  const bool shown = options_.shown_ranks.empty() || options_.shown_ranks.count(0) != 0;
  const bool filed = selected(options_.tees, 0, true) || selected(options_.redirects, 0, true);
  return shown && !filed && env("TERM") != "dumb" && !env("CI");
}

void RunOutput::begin(int restart) {
  std::string command;
  for (const std::string& word : options_.command) command += ' ' + quoted(word);
  mark_ = fmt::format("=== {}, c10d-run, attempt {}:{}",
                      local_time(std::chrono::system_clock::now()), restart, command);
  for (auto& [stream, target] : targets_) target.file.mark(mark_);
  for (LogFile& file : filtered_) file.mark(mark_);
}

RunOutput::Target& RunOutput::target(int rank, bool is_stderr) {
  const auto found = targets_.find({rank, is_stderr});
  if (found != targets_.end()) return found->second;
  return targets_.emplace(std::pair(rank, is_stderr), make_target(rank, is_stderr)).first->second;
}

RunOutput::Target RunOutput::make_target(int rank, bool is_stderr) const {
  Target target;
  const bool teed = selected(options_.tees, rank, is_stderr);
  const bool redirected = selected(options_.redirects, rank, is_stderr);
  const bool shown = options_.shown_ranks.empty() || options_.shown_ranks.count(rank) != 0;
  target.console = shown && (teed || !redirected);
  target.filtered =
      filtered_[is_stderr ? 1 : 0].is_open() && (teed || !options_.duplicates.of_tees_only);
  if (!teed && !redirected) return target;
  target.file.open(std::filesystem::path(folder_) / std::to_string(rank) /
                   fmt::format("{}.log", name_of_stream(is_stderr)));
  if (!mark_.empty()) target.file.mark(mark_);
  return target;
}

void RunOutput::write(LogFile& file, std::string_view text, std::string_view what) {
  if (file.is_open() && !file.write(text))
    fmt::print(stderr, "c10d-run: the rest of {} is not in {}: cannot write\n", what, folder_);
}

void RunOutput::write_filtered(int rank, bool is_stderr, std::string_view text,
                               std::string_view shown) {
  const auto& filters = is_stderr ? options_.duplicates.err : options_.duplicates.out;
  const auto is_in = [&](const std::string& filter) { return text.find(filter) != text.npos; };
  if (std::any_of(filters.begin(), filters.end(), is_in))
    write(filtered_[is_stderr ? 1 : 0], fmt::format("[{}] {}", rank, shown), "the filtered lines");
}

void RunOutput::line(int rank, bool is_stderr, std::string_view text) {
  Target& to = target(rank, is_stderr);
  std::string with_time;
  std::string_view shown = text;
  if (options_.timestamps) shown = with_time = fmt::format("{} {}", timestamp(), text);
  if (to.file.is_open())
    write(to.file, shown, fmt::format("rank {}'s {}", rank, name_of_stream(is_stderr)));
  if (to.filtered) write_filtered(rank, is_stderr, text, shown);
  if (to.console) print_rank_line(rank, is_stderr, shown, options_.prefix);
}

}}  // namespace c10d::v0
