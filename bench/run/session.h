// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/analyse/summary.h"
#include "bench/model/options.h"
#include "bench/model/record.h"
#include "bench/text/output_file.h"
#include "bench/text/terminal.h"

namespace c10d::bench {

// The first record of a file, but for what only one command has: which program ran, how, and when.
Json run_record(const std::string& command, const std::vector<std::string>& argv,
                std::uint64_t seed, int ranks, const std::string& launcher,
                const std::vector<std::string>& backends);
// The last one.
Json end_record(int exit_code, bool complete, std::size_t cells, std::size_t skipped);

// One run as its user sees it: takes the records of all launches, writes them as they come, and in
// the end prints and writes everything that was asked for. Thread-safe.
class Session {
 public:
  Session(const RunOptions& options, int ranks, int ranks_here, std::size_t cases,
          const std::string& launcher);

  void take(const Json& line);
  // Beside those of the options.
  void plan_launches(std::size_t more) { launches_planned_ += static_cast<int>(more); }
  // Whether launch `number` (from 0) measured all it was asked to.
  bool launch_is_done(int number) const { return launches_done_ > number; }
  // Of those measured so far, in their order.
  std::vector<std::string> measured_backends();
  // A line that a rank wrote.
  void show(std::string_view line);
  void warn(const char* code, const std::string& text);
  // Prints and writes everything. `exit_code` is the ranks'; returns the program's. What comes
  // later comes too late; called again, it returns the same.
  int finish(int exit_code);

 private:
  void add(const Json& line);
  int end(int exit_code);
  void write(const Json& line);
  void tell(const CellRecord& cell);
  int verdict_code(int exit_code, const Summary& summary) const;
  void write_files(const Summary& summary);
  void print(const Summary& summary, int exit_code);

  const RunOptions& options_;
  std::mutex mutex_;
  std::optional<int> ended_;  // with this exit code
  Results results_;
  int launches_planned_;
  int launches_done_ = 0;
  OutputFile json_;
  int json_error_ = 0;  // errno of the first record that could not be written
  Progress progress_;
};

}  // namespace c10d::bench
