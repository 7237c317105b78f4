// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run_output.h"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

#include "c10d/launch.h"

namespace c10d::inline v0 {
namespace {

bool selected(const std::map<int, Streams>& by_rank, int rank, bool is_stderr) {
  auto found = by_rank.find(rank);
  if (found == by_rank.end()) found = by_rank.find(-1);
  if (found == by_rank.end()) return false;
  return is_stderr ? found->second.err : found->second.out;
}

}  // namespace

RunOutput::RunOutput(const RunOptions& options) : prefix_(options.prefix) {
  for (int rank = 0; rank < options.ranks; ++rank)
    for (const bool is_stderr : {false, true})
      targets_.push_back(make_target(options, rank, is_stderr));
}

RunOutput::Target RunOutput::make_target(const RunOptions& options, int rank,
                                         bool is_stderr) const {
  Target target;
  const bool teed = selected(options.tees, rank, is_stderr);
  const bool redirected = selected(options.redirects, rank, is_stderr);
  const bool shown = options.shown_ranks.empty() || options.shown_ranks.count(rank) != 0;
  target.console = shown && (teed || !redirected);
  if (!teed && !redirected) return target;

  const auto folder = std::filesystem::path(options.log_dir) / std::to_string(rank);
  const auto path = folder / (is_stderr ? "stderr.log" : "stdout.log");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  target.file.open(path, std::ios::app);
  if (!target.file) {
    throw std::runtime_error(fmt::format("cannot write {}{}", path.string(),
                                         error ? ": " + error.message() : std::string()));
  }
  return target;
}

void RunOutput::line(int rank, bool is_stderr, std::string_view text) {
  Target& target = targets_.at(static_cast<std::size_t>(2 * rank + (is_stderr ? 1 : 0)));
  if (target.file.is_open()) target.file << text << std::endl;
  if (target.console) print_rank_line(rank, is_stderr, text, prefix_);
}

}  // namespace c10d::inline v0
