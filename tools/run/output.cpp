// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "c10d/env.h"
#include "c10d/launch.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {
namespace {

bool selected(const std::map<int, Streams>& by_rank, int rank, bool is_stderr) {
  auto found = by_rank.find(rank);
  if (found == by_rank.end()) found = by_rank.find(-1);
  if (found == by_rank.end()) return false;
  return is_stderr ? found->second.err : found->second.out;
}

}  // namespace

RunOutput::RunOutput(const RunOptions& options) : options_(options) {
  if (options.hosts.count > 1) return;
  for (int rank = 0; rank < options.ranks; ++rank)
    for (const bool is_stderr : {false, true}) target(rank, is_stderr);
}

bool RunOutput::takes_status() const {
  const bool shown = options_.shown_ranks.empty() || options_.shown_ranks.count(0) != 0;
  const bool filed = selected(options_.tees, 0, true) || selected(options_.redirects, 0, true);
  return shown && !filed && env("TERM") != "dumb" && !env("CI");
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
  if (!teed && !redirected) return target;

  const auto folder = std::filesystem::path(options_.log_dir) / std::to_string(rank);
  const auto path = folder / (is_stderr ? "stderr.log" : "stdout.log");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  target.file.open(path, std::ios::app);
  if (!target.file) {
    throw std::runtime_error(fmt::format("cannot write {}{}", path.string(),
                                         ": " + (error ? error.message() : error_text(errno))));
  }
  return target;
}

void RunOutput::line(int rank, bool is_stderr, std::string_view text) {
  Target& to = target(rank, is_stderr);
  if (to.file.is_open() && !(to.file << text << std::endl)) {
    to.file.close();
    fmt::print(stderr, "c10d-run: the rest of rank {}'s {} is not in --log-dir {}: cannot write\n",
               rank, is_stderr ? "stderr" : "stdout", options_.log_dir);
  }
  if (to.console) print_rank_line(rank, is_stderr, text, options_.prefix);
}

}}  // namespace c10d::v0
