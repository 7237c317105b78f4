// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tools/run/options.h"

namespace c10d { inline namespace v0 {

// A file to which several runs append lines.
class LogFile {
 public:
  // Makes its folder too. Throws std::runtime_error.
  void open(const std::filesystem::path& path);
  bool is_open() const { return file_.is_open(); }
  // A line of its own, if anything is above it.
  void mark(const std::string& text);
  // Says whether the file took the line. One that does not is closed.
  bool write(std::string_view line);

 private:
  std::ofstream file_;
};

// Where the ranks' lines go: to the console, to LOGDIR/RANK/{stdout,stderr}.log, or both, and the
// lines that a filter names to LOGDIR/filtered_{stdout,stderr}.log.
class RunOutput {
 public:
  // Which ranks are this host's is known of one host only: then the files are made at once, else
  // with the first line. `options` must outlive it. Throws std::runtime_error.
  explicit RunOutput(const RunOptions& options);
  // LOGDIR, which is a new temporary folder where the options name none; empty: no files.
  const std::string& folder() const { return folder_; }
  // Of rank 0: where its stderr goes to the console alone, and the user wants to see things move.
  bool takes_status() const;
  // Before the ranks start: marks the place in files to which something was written before.
  void begin(int restart);
  void line(int rank, bool is_stderr, std::string_view text);

 private:
  struct Target {
    bool console = true;
    bool filtered = false;
    LogFile file;
  };
  Target make_target(int rank, bool is_stderr) const;
  Target& target(int rank, bool is_stderr);
  void write_filtered(int rank, bool is_stderr, std::string_view text, std::string_view shown);
  void write(LogFile& file, std::string_view text, std::string_view what);

  const RunOptions& options_;
  const std::string folder_;
  std::string mark_;
  std::map<std::pair<int, bool>, Target> targets_;  // by rank of the job, and whether stderr
  std::array<LogFile, 2> filtered_;                 // of stdout and stderr
};

}}  // namespace c10d::v0
