// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/options.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "c10d/capability.h"
#include "src/base/env_table.h"
#include "src/base/host.h"
#include "src/launch/spawn.h"
#include "src/net/socket.h"
#include "src/net/token.h"
#include "tools/run/agent.h"
#include "tools/run/command_line.h"
#include "tools/run/doctor.h"
#include "tools/run/hosts.h"

namespace c10d { inline namespace v0 {
namespace {

int ranks_of(const std::string& text) {
  if (text == "auto" || text == "cpu") return allowed_cpus();
  if (text == "gpu" || text == "xpu")
    usage_error(fmt::format(
        "--nproc-per-node {}: c10d-run cannot count these devices; give a number", text));
  const std::optional<int> ranks = to_int(text);
  if (!ranks || *ranks < 1 || *ranks > kMaxLocalRanks)
    usage_error(
        fmt::format("-n {}: give a number of ranks from 1 to {}, or auto", text, kMaxLocalRanks));
  return *ranks;
}

// "3" for all ranks, or "0:1,2:3" by rank.
std::map<int, Streams> streams_of(const std::string& option, const std::string& text, int ranks) {
  std::map<int, Streams> result;
  for (const std::string& part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const std::optional<int> rank =
        colon == std::string::npos ? std::optional<int>(-1) : to_int(part.substr(0, colon));
    const std::optional<int> mask =
        to_int(colon == std::string::npos ? part : part.substr(colon + 1));
    if (rank && colon != std::string::npos && (*rank < 0 || *rank >= ranks))
      usage_error(fmt::format("{} {}: ranks are 0 to {}", option, text, ranks - 1));
    if (!rank || !mask || *mask < 0 || *mask > 3)
      usage_error(fmt::format("{} {}: give 0, 1 (stdout), 2 (stderr) or 3 (both), or RANK:K,..",
                              option, text));
    result[*rank] = {(*mask & 1) != 0, (*mask & 2) != 0};
  }
  return result;
}

void check_one_host(const RawOptions& raw) {
  const std::string& endpoint = raw.hosts.rdzv_endpoint;
  const std::string host = endpoint.substr(0, endpoint.rfind(':'));
  const std::vector<std::string> here = {"", "localhost", "127.0.0.1", "[::1]", host_name()};
  if (std::find(here.begin(), here.end(), host) == here.end())
    usage_error(
        fmt::format("--rdzv-endpoint {}: {} is not this host ({})", endpoint, host, host_name()));
}

void check_several_hosts(const RawOptions& raw) {
  const auto refuse = [&](bool given, const std::string& option, const char* instead) {
    if (given) usage_error(fmt::format("{} works on one host only{}", option, instead));
  };
  refuse(raw.standalone, "--standalone", "");
  refuse(raw.max_restarts > 0, "--max-restarts", "; start the job again on every host");
  refuse(raw.max_failures > 0, "--max-failures", "");
  refuse(!raw.via.empty(), "--via", "; give mpirun the hosts");
  refuse(!raw.print_for.empty(), fmt::format("--print {}", raw.print_for),
         "; --print-commands and --print mpirun, with -H node1:4,node2:4, are for several");
}

std::vector<std::string> full_command(const RawOptions& raw, std::vector<std::string> command,
                                      bool& is_python) {
  is_python = raw.module || raw.run_path || (command.front().ends_with(".py") && !raw.no_python);
  if (!is_python) return command;
  std::vector<std::string> prefix = {"python3", "-u"};
  if (raw.module) prefix.push_back("-m");
  command.insert(command.begin(), prefix.begin(), prefix.end());
  return command;
}

std::optional<std::string> inherited(const std::string& name) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with(name) && text.substr(name.size()).starts_with('='))
      return std::string(text.substr(name.size() + 1));
  }
  return std::nullopt;
}

// Of -x.
std::map<std::string, std::string> named_variables(const RawOptions& raw) {
  std::map<std::string, std::string> environment;
  for (const std::string& entry : raw.environment) {
    const std::size_t equals = entry.find('=');
    if (equals == 0 || entry.empty())
      usage_error(fmt::format("-x {}: write NAME=VALUE, or NAME", entry));
    if (equals != std::string::npos)
      environment[entry.substr(0, equals)] = entry.substr(equals + 1);
    else if (const auto value = inherited(entry))
      environment[entry] = *value;
  }
  return environment;
}

std::map<std::string, std::string> environment_of(const RawOptions& raw, bool several) {
  std::map<std::string, std::string> environment = named_variables(raw);
  environment["ROLE_NAME"] = raw.role;
  environment["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(raw.max_restarts);
  const HostsText& hosts = raw.hosts;
  if (!hosts.rdzv_id.empty()) environment["TORCHELASTIC_RUN_ID"] = hosts.rdzv_id;
  if (several) return environment;
  if (!hosts.master_addr.empty()) environment["MASTER_ADDR"] = hosts.master_addr;
  if (!hosts.master_port.empty() && hosts.master_port != "0") {
    const std::optional<int> port = to_int(hosts.master_port);
    if (!port || *port < 0 || *port > 65535)
      usage_error(fmt::format("--master-port {}: give a port from 0 to 65535", hosts.master_port));
    environment["MASTER_PORT"] = hosts.master_port;
  }
  return environment;
}

std::vector<std::string> warnings_of(const RawOptions& raw, const MultiHostOptions& hosts) {
  std::vector<std::string> warnings;
  const auto unused = [&](std::string_view option, const std::string& value) {
    if (!value.empty()) warnings.push_back(fmt::format("{} has no effect here", option));
  };
  if (hosts.count == 1) {
    unused("--local-addr", raw.hosts.local_addr);
    unused("--rdzv-conf", raw.hosts.rdzv_conf);
  }
  if (const std::string doubt = doubt_about(hosts); !doubt.empty()) warnings.push_back(doubt);
  for (const std::string& entry : raw.environment)
    if (entry.find('=') == std::string::npos && !inherited(entry))
      warnings.push_back(
          fmt::format("-x {0}: {0} is not set here, so the ranks do not get it", entry));
  unused("--start-method", raw.start_method);
  unused("--event-log-handler", raw.event_log_handler);
  unused("--logs-specs", raw.logs_specs);
  for (const UnknownEnv& variable : unknown_env()) {
    warnings.push_back(fmt::format(
        "{} is set but unknown{}", variable.name,
        variable.nearest.empty() ? "" : fmt::format("; did you mean {}?", variable.nearest)));
  }
  return warnings;
}

// "-x NAME" means the value here.
std::vector<std::string> words_for_hosts(const TypedOption& option) {
  if (option.name != "--env" || option.words.size() != 2 ||
      option.words[1].find('=') != option.words[1].npos)
    return option.words;
  const auto value = inherited(option.words[1]);
  return value ? std::vector{option.words[0], option.words[1] + '=' + *value}
               : std::vector<std::string>{};
}

// Where the others cannot reach it: a loopback address of the first host means each its own.
void check_meeting_place(const std::vector<HostLine>& lines, const std::string& address) {
  const auto is_loopback = [](const std::string& host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
  };
  if (!address.empty() || !is_loopback(lines.front().host)) return;
  for (const HostLine& line : lines)
    if (!is_loopback(line.host))
      usage_error(
          fmt::format("{} is the first host, where {} is to meet it: write the name by which the "
                      "others reach it, or give --master-addr",
                      lines.front().host, line.host));
}

std::vector<HostLine> lines_of_hosts(const CommandLine& line) {
  const RawOptions& raw = line.raw;
  for (const TypedOption& option : line.typed)
    if (option.name == "--nnodes" || option.name == "--node-rank")
      usage_error(fmt::format("{}: the list of hosts says it already", option.name));
  if (!raw.host_list.empty() && !raw.host_file.empty())
    usage_error("--hosts and --hostfile both name the hosts: give one");
  if (raw.ranks != "auto") ranks_of(raw.ranks);
  HostCommands wanted{
      .hosts = raw.host_file.empty() ? hosts_of_list(raw.host_list) : hosts_of_file(raw.host_file),
      .ranks = raw.ranks,
      .address = raw.hosts.master_addr,
      .port = raw.hosts.master_port,
      .options = {},
      .command = line.command};
  // Those of which every host has another, and those that ask for this.
  const std::set<std::string> own = {"--nproc-per-node", "--hosts",       "--hostfile",
                                     "--print-commands", "--agent",       "--nnodes",
                                     "--node-rank",      "--master-addr", "--master-port",
                                     "--token-on-stdin", "--env-on-stdin"};
  for (const TypedOption& option : line.typed) {
    if (own.count(option.name) != 0) continue;
    if (option.name == "--env" && !raw.print_commands) continue;  // see RunOptions::environment
    const std::vector<std::string> words = words_for_hosts(option);
    wanted.options.insert(wanted.options.end(), words.begin(), words.end());
  }
  if (raw.print_commands) return host_lines(wanted);
  if (raw.hosts.rdzv_id.empty()) wanted.options.push_back("--rdzv-id=" + to_hex(random_bytes(8)));
  if (raw.directory.empty())
    wanted.options.push_back("--wdir=" + std::filesystem::current_path().string());
  wanted.options.emplace_back("--token-on-stdin");
  wanted.options.emplace_back("--env-on-stdin");
  return host_lines(wanted);
}

// Where a rank may run, as --bind or --numa-binding says it.
void settle_binding(const RawOptions& raw, RunOptions& options) {
  static const std::map<std::string, CpuBinding> kKinds = {
      {"none", CpuBinding::none}, {"share", CpuBinding::share}, {"core", CpuBinding::core},
      {"l3", CpuBinding::l3},     {"numa", CpuBinding::numa},   {"socket", CpuBinding::socket}};
  static const std::map<std::string, std::string> kTorchruns = {
      {"node", "numa"}, {"socket", "socket"}, {"exclusive", "share"}, {"core-complex", "l3"}};
  if (!raw.bind.empty() && !raw.numa_binding.empty())
    usage_error("--bind and --numa-binding both say where ranks run: give one");
  if (raw.bind.empty() && raw.numa_binding.empty()) return;
  constexpr std::string_view kOverload = ":overload-allowed";
  std::string kind = raw.numa_binding.empty() ? raw.bind : kTorchruns.at(raw.numa_binding);
  options.overload_cpus =
      kind == "share" + std::string(kOverload) || kind == "core" + std::string(kOverload);
  if (options.overload_cpus) kind.resize(kind.size() - kOverload.size());
  const auto found = kKinds.find(kind);
  if (found == kKinds.end())
    usage_error(
        fmt::format("--bind {}: give none, share, core, l3, numa or socket; share{} and "
                    "core{} let ranks share CPUs where there are too few",
                    raw.bind, kOverload, kOverload));
  options.cpu_binding = found->second;
}

std::vector<int> signals_of(const std::string& text) {
  std::vector<int> signals;
  for (const std::string& part : split(text, ',')) {
    const std::string name = part.starts_with("SIG") ? part.substr(3) : part;
    int number = 1;
    while (number < NSIG && (sigabbrev_np(number) == nullptr || name != sigabbrev_np(number)))
      ++number;
    if (number == NSIG)
      usage_error(
          fmt::format("--signals-to-handle {}: there is no signal {}; write SIGTERM,SIGUSR1", text,
                      part.empty() ? "''" : part));
    if (std::find(signals.begin(), signals.end(), number) == signals.end())
      signals.push_back(number);
  }
  return signals;
}

// "apple,pear" where ",," is a comma in a text.
std::vector<std::string> filters_of(const char* option, const std::string& text) {
  if (text.empty()) return {};
  std::vector<std::string> filters(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != ',') {
      filters.back() += text[at];
    } else if (text.compare(at, 2, ",,") == 0) {
      filters.back() += text[at++];
    } else {
      filters.emplace_back();
    }
  }
  for (const std::string& filter : filters)
    if (filter.empty())
      usage_error(
          fmt::format("{} {}: an empty filter matches every line; write a,b, and ,, for a comma",
                      option, text));
  return filters;
}

std::chrono::nanoseconds seconds_of(const char* option, double seconds) {
  if (std::isnan(seconds)) usage_error(fmt::format("{} nan: give seconds", option));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

void settle_output(const RawOptions& raw, int known_ranks, RunOptions& options) {
  options.prefix = !raw.no_prefix;
  options.timestamps = raw.timestamps;
  options.log_dir = raw.log_dir;
  options.redirects = streams_of("--redirects", raw.redirects, known_ranks);
  options.tees = streams_of("--tee", raw.tee, known_ranks);
  options.duplicates.out = filters_of("--duplicate-stdout-filters", raw.duplicate_stdout);
  options.duplicates.err = filters_of("--duplicate-stderr-filters", raw.duplicate_stderr);
  options.duplicates.of_tees_only = raw.tee != "0";
  const bool duplicates = !options.duplicates.out.empty() || !options.duplicates.err.empty();
  const bool to_files = raw.redirects != "0" || raw.tee != "0";
  if (!to_files && !duplicates && !raw.log_dir.empty()) options.tees[-1] = {true, true};
  options.writes_files = to_files || duplicates || !raw.log_dir.empty();
  if (raw.shown.empty()) return;
  for (const std::string& part : split(raw.shown, ',')) {
    const std::optional<int> rank = to_int(part);
    if (!rank || *rank < 0 || *rank >= known_ranks)
      usage_error(
          fmt::format("--ranks-filter {}: ranks are 0 to {}", raw.shown, options.ranks - 1));
    options.shown_ranks.insert(*rank);
  }
}

void check_directory(const std::string& directory) {
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0)
    usage_error(fmt::format("--wdir {}: {}", directory, error_text(errno)));
  if (!S_ISDIR(info.st_mode)) usage_error(fmt::format("--wdir {}: not a directory", directory));
}

void check_other_launcher(const RawOptions& raw, const RunOptions& options) {
  if (raw.print_for.empty() && raw.via.empty()) return;
  const auto refuse = [&](bool given, const char* option, const char* instead) {
    if (given)
      usage_error(fmt::format("{} is for ranks that c10d-run starts itself{}", option, instead));
  };
  refuse(raw.max_failures > 0, "--max-failures", "");
  refuse(options.cpu_binding != CpuBinding::none, "--bind",
         ": bind those of another launcher with its own option");
  refuse(raw.virtual_local_rank, "--virtual-local-rank", "");
}

RunOptions settle(const RawOptions& raw, std::vector<std::string> command) {
  if (raw.rdzv_backend != "static" && raw.rdzv_backend != "c10d")
    usage_error(
        fmt::format("--rdzv-backend {}: there is no client for it; static and c10d mean "
                    "the launcher's own store",
                    raw.rdzv_backend));
  RunOptions options;
  options.hosts = parse_hosts(raw.hosts);
  const bool several = options.hosts.count > 1;
  several ? check_several_hosts(raw) : check_one_host(raw);
  options.ranks = ranks_of(raw.ranks);
  options.command = full_command(raw, std::move(command), options.is_python);
  options.environment = environment_of(raw, several);
  options.max_restarts = raw.max_restarts;
  options.max_failures = raw.max_failures;
  options.grace = seconds_of("--grace", raw.grace);
  options.timeout = seconds_of("--timeout", raw.timeout);
  options.directory = raw.directory;
  if (!raw.directory.empty() && raw.print_for.empty()) check_directory(raw.directory);
  options.virtual_local_rank = raw.virtual_local_rank;
  options.signals = signals_of(raw.signals);
  settle_binding(raw, options);
  check_other_launcher(raw, options);
  options.verbose = raw.verbose;
  if (raw.env_on_stdin && !raw.token_on_stdin)
    usage_error("--env-on-stdin: the variables stand behind the secret: add --token-on-stdin");
  options.token_on_stdin = raw.token_on_stdin;
  options.env_on_stdin = raw.env_on_stdin;
  const std::vector<int>& forwarded = options.signals;
  if (raw.token_on_stdin &&
      std::find(forwarded.begin(), forwarded.end(), SIGTERM) == forwarded.end())
    options.signals.push_back(SIGTERM);  // it says that stdin has ended
  options.print_for = raw.print_for;
  options.via = raw.via;
  // Of several hosts nobody knows how many ranks the others have.
  const int known_ranks = several ? std::numeric_limits<int>::max() : options.ranks;
  settle_output(raw, known_ranks, options);
  options.warnings = warnings_of(raw, options.hosts);
  return options;
}

RunOptions settle_for_mpirun(const CommandLine& line, const std::vector<HostLine>& lines) {
  for (const HostLine& host : lines)
    if (!to_int(host.ranks))
      usage_error(
          fmt::format("--print mpirun: write how many ranks {} has, {}:N", host.host, host.host));
  RunOptions options = settle(line.raw, line.command);
  options.host_lines = lines;
  return options;
}

// The words that start a program on the same hosts again, as they were typed.
std::string launch_line_of(const RawOptions& raw) {
  std::string text = "c10d-run";
  const auto add = [&text](const char* option, const std::string& value) {
    if (!value.empty()) text += fmt::format(" {} {}", option, quoted(value));
  };
  add("-H", raw.host_list);
  add("--hostfile", raw.host_file);
  add("-n", raw.ranks == "1" ? "" : raw.ranks);
  add("--agent", raw.agent);
  return text;
}

}  // namespace

RunOptions parse_run_options(int argc, char** argv) {
  CommandLine line = read_command_line(argc, argv);
  const RawOptions& raw = line.raw;
  if (raw.version) throw EarlyExit{0, fmt::format("c10d-run {}\n", version())};
  if (line.command.empty()) usage_error("no program to run: c10d-run -n 2 ./program");
  if (raw.host_list.empty() && raw.host_file.empty()) {
    if (raw.print_commands)
      usage_error("--print-commands needs hosts: -H node1:4,node2:4, or --hostfile FILE");
    if (!raw.agent.empty())
      usage_error("--agent needs hosts: -H node1:4,node2:4, or --hostfile FILE");
    return settle(raw, std::move(line.command));
  }
  const std::vector<HostLine> lines = lines_of_hosts(line);
  check_meeting_place(lines, raw.hosts.master_addr);
  if (raw.print_commands) return {.host_commands = printed(lines, argv[0])};
  if (raw.print_for == "mpirun") return settle_for_mpirun(line, lines);
  check_several_hosts(raw);
  RunOptions options;
  options.host_lines = lines;
  options.agent = agent_of(raw.agent);
  read_conf(raw.hosts, options.hosts);
  options.environment = named_variables(raw);
  options.environment["C10D_LAUNCH_LINE"] = launch_line_of(raw);
  options.signals = signals_of(raw.signals);
  options.grace = seconds_of("--grace", raw.grace);
  options.verbose = raw.verbose;
  return options;
}

DoctorOptions parse_doctor_options(int argc, char** argv) {
  CommandLine line = read_command_line(argc, argv);
  const RawOptions& raw = line.raw;
  if (!line.command.empty())
    usage_error(fmt::format("doctor starts no program: leave out {}", line.command.front()));
  if (raw.host_list.empty() && raw.host_file.empty())
    usage_error("doctor needs hosts: -H node1:4,node2:4, or --hostfile FILE");
  DoctorOptions options{
      .hosts = {},
      .agent = agent_of(raw.agent),
      .port = raw.hosts.master_port.empty() ? kDefaultPort : raw.hosts.master_port,
      .directory = raw.directory};
  const std::vector<HostLine> lines = lines_of_hosts(line);
  check_meeting_place(lines, raw.hosts.master_addr);
  for (const HostLine& host : lines) options.hosts.push_back(host.host);
  return options;
}

}}  // namespace c10d::v0
