// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/run/hosts.h"

namespace c10d { inline namespace v0 {

// The command line as text: what it means is settled after the environment had its say.
struct RawOptions {
  std::string ranks = "1", rdzv_backend = "static", host_list, host_file, agent;
  HostsText hosts{.nnodes = "1"};
  std::string monitor_interval, start_method, event_log_handler, logs_specs;
  std::string role = "default", redirects = "0", tee = "0", shown, log_dir, print_for, via;
  std::string bind, numa_binding, directory, duplicate_stdout, duplicate_stderr;
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  int max_restarts = 0, max_failures = 0;
  double grace = 5, timeout = 0;
  std::vector<std::string> environment;
  bool standalone = false, module = false, no_python = false, run_path = false, no_prefix = false;
  bool timestamps = false, virtual_local_rank = false, print_commands = false;
  bool verbose = false, version = false, token_on_stdin = false, env_on_stdin = false;
};

// One option.
struct OptionRow {
  const char* names;  // "-n,--nproc-per-node", without the spelling with underscores
  const char* value;  // what the help text calls it; empty: a flag
  const char* group;  // of the help text; empty: hidden
  const char* help;
  std::variant<std::string*, std::vector<std::string>*, double*, int*, bool*> target;
  double low = 0, high = 0;          // of numbers
  std::vector<std::string> among{};  // of text; empty: any
};

// All of them, with values in `raw`.
std::vector<OptionRow> option_table(RawOptions& raw);

// For an option of another launcher: what to write instead, or why there is none. Else empty.
std::string_view advice_for(std::string_view name);

extern const char* const kUsageLine;
extern const char* const kDescription;
extern const char* const kFooter;

}}  // namespace c10d::v0
