// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "src/net/socket.h"

namespace c10d { inline namespace v0 {

// A program under test. Whatever it leaves behind becomes a child of this process, so that nothing
// escapes.
class Process {
 public:
  struct Options {
    std::vector<std::string> command;
    std::map<std::string, std::string> environment;  // added
    std::string input;                               // on stdin
    bool hold_input = false;                         // until close_input()
    bool terminal = false;                           // stdout and stderr are one
    int ignored_signal = 0;
  };
  explicit Process(const Options& options);
  ~Process();  // kills what is left
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Reads until stdout holds `count` lines or the deadline passes; whether it did.
  bool wait_for_lines(std::size_t count);
  // The same until stderr holds `text`.
  bool wait_for_error(const std::string& text);
  void close_input() { in_fd_.reset(); }
  // Reads to the end, waits for the end: the exit code, or 128 + signal; -1 when the deadline
  // passes.
  int wait();
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  bool read_more();

  pid_t pid_ = -1;
  bool reaped_ = false;
  Fd in_fd_, out_fd_, err_fd_;
  std::string out_, err_;
  std::chrono::steady_clock::time_point deadline_;
};

// Runs a program to its end.
struct Ended {
  int code = -1;
  std::string out, err;
};
Ended run(const Process::Options& options);
// c10d-run with these arguments.
Ended run_ranks(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& environment = {});
std::vector<std::string> c10d_run(const std::vector<std::string>& arguments);

bool contains(const std::string& text, const std::string& part);
std::vector<std::string> lines_of(const std::string& text);
std::vector<std::string> sorted_lines_of(const std::string& text);

// Waits until this process has no child, adopted ones included. Those that still live at the
// deadline are killed; returns their command lines.
std::string processes_left();

}}  // namespace c10d::v0
