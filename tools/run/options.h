// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "c10d/launch.h"
#include "tools/run/args.h"
#include "tools/run/doctor.h"
#include "tools/run/hosts.h"

namespace c10d { inline namespace v0 {

// Which streams of a rank go to files: torchrun's 0 to 3.
struct Streams {
  bool out = false;
  bool err = false;
};

// Lines that contain one of these texts go to one more file, by stream.
struct Duplicates {
  std::vector<std::string> out, err;
  bool of_tees_only = false;  // else of every rank
};

struct RunOptions {
  int ranks = 1;
  std::vector<std::string> command;  // ready to run: with the interpreter of a script
  bool is_python = false;
  std::map<std::string, std::string> environment;  // of the ranks; with host_lines only that of -x
  int max_restarts = 0;
  int max_failures = 0;
  std::chrono::nanoseconds grace = std::chrono::seconds(5);
  std::chrono::nanoseconds timeout{};  // of all runs together; 0: none
  std::string directory;               // of the ranks; empty: this one
  CpuBinding cpu_binding = CpuBinding::none;
  bool overload_cpus = false;
  bool virtual_local_rank = false;
  std::vector<int> signals;  // that are forwarded
  bool prefix = true;
  bool timestamps = false;
  bool verbose = false;
  std::string print_for, via;        // another launcher's name, or empty
  MultiHostOptions hosts;            // with host_lines only how long they wait for each other
  std::string host_commands;         // to print instead of starting anything
  std::vector<HostLine> host_lines;  // of the hosts to start or print; empty: this one alone
  std::vector<std::string> agent;    // how to start them: words with %h and %c
  bool token_on_stdin = false;       // the secret of several hosts, in the first line
  bool env_on_stdin = false;         // and variables behind it
  bool writes_files = false;
  std::string log_dir;                     // of these files; empty: a temporary folder
  std::map<int, Streams> redirects, tees;  // by rank; -1 = every rank
  Duplicates duplicates;
  std::set<int> shown_ranks;  // on the console; empty = all
  std::vector<std::string> warnings;
};

// Reads argv, then PET_* for what argv leaves open. Throws EarlyExit: help, version, or a usage
// error.
RunOptions parse_run_options(int argc, char** argv);

// The same of what stands behind `c10d-run doctor`.
DoctorOptions parse_doctor_options(int argc, char** argv);

}}  // namespace c10d::v0
