// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

#include "c10d/env.h"
#include "c10d/version.h"
#include "src/base/env_table.h"
#include "src/base/host.h"
#include "src/base/suggest.h"
#include "src/launch/spawn.h"
#include "tools/manual/manual.h"
#include "tools/run/hosts.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr const char* kUsageLine = "c10d-run [options] PROGRAM [arguments of the program]";
constexpr const char* kDescription =
    "Starts ranks of a program on this host, waits for them, and leaves none behind.\n"
    "On several hosts, run it on each.";
constexpr const char* kFooter = R"(Examples:
  c10d-run -n 4 ./train --epochs 3        four ranks; each line of output is "[rank] line"
  c10d-run -n auto train.py               one rank per CPU; a .py file runs under python3 -u
  c10d-run --nproc_per_node=2 ./train     torchrun's spelling, with - or _, or PET_NPROC_PER_NODE=2
  c10d-run -n 4 --log-dir logs -r 3 ./train   output in logs/RANK/stdout.log and stderr.log
  c10d-run -n 4 --max-restarts 2 ./train  all ranks again after a failure, twice at most
  c10d-run -n 4 --print mpirun ./train    the line to type for another launcher
  c10d-run -n 4 --via mpirun ./train      mpirun starts the ranks (C10D_BACKEND: mpi)
  c10d-run --print-commands -H node1:4,node2:4 ./train   what to type on each of several hosts

Each rank finds in its environment C10D_RANK, C10D_WORLD_SIZE, C10D_STORE, ..., and what torchrun
sets (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...). When one fails, the others get
SIGTERM, then SIGKILL, unless --max-failures lets them continue; the first failure is reported.

Exit status: 0; the code of the first rank that failed, or 128 + signal; 2 for a mistake in this
command line or a program that cannot be started; 1 when c10d-run itself fails.
c10d-info lists every environment variable. More: docs/launching.md.)";

// As text: what they mean is settled after the environment had its say.
struct Raw {
  std::string ranks = "1", rdzv_backend = "static", host_list;
  HostsText hosts{.nnodes = "1"};
  std::string monitor_interval, start_method, event_log_handler, logs_specs;
  std::string role = "default", redirects = "0", tee = "0", shown, log_dir, print_for, via;
  int max_restarts = 0, max_failures = 0;
  double grace = 5;
  std::vector<std::string> environment;
  bool standalone = false, module = false, no_python = false, run_path = false, no_prefix = false;
  bool print_commands = false;
  bool verbose = false, version = false;
};

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(34); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return fmt::format("Usage: {}\n", kUsageLine);
  }
};

void add_own(CLI::App& app, Raw& raw) {
  app.add_option("-n,--nproc-per-node", raw.ranks, "ranks on this host: a number, auto or cpu (1)")
      ->type_name("N");
  app.add_option("-x,--env", raw.environment, "variable for the ranks; repeatable")
      ->type_name("NAME=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  app.add_option("--grace,--shutdown-timeout", raw.grace,
                 "seconds from SIGTERM to SIGKILL once a rank has failed (5)")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86400.0).description(""));
  app.add_option("--max-restarts", raw.max_restarts, "how many times to restart all ranks (0)")
      ->type_name("K")
      ->check(CLI::Range(0, 1000000).description(""));
  app.add_option("--max-failures", raw.max_failures,
                 "ranks that may fail while the others continue (0)")
      ->type_name("K")
      ->check(CLI::Range(0, 1000000).description(""));
  app.add_flag("--no-prefix", raw.no_prefix, "lines as they are, without \"[rank] \"");
  app.add_option("--local-ranks-filter,--ranks-filter", raw.shown, "show the output of these only")
      ->type_name("0,2,..");
  app.add_option("--log-dir", raw.log_dir, "folder for redirected output")->type_name("DIR");
  app.add_option("-r,--redirects", raw.redirects,
                 "to files instead of here: 0 none, 1 stdout, 2 stderr, 3 both")
      ->type_name("K|RANK:K,..");
  app.add_option("-t,--tee", raw.tee, "to files and here too")->type_name("K|RANK:K,..");
  app.add_option("--print", raw.print_for, "print the line for srun, mpirun or torchrun and exit")
      ->type_name("LAUNCHER")
      ->check(CLI::IsMember({"srun", "mpirun", "torchrun"}).description(""));
  app.add_option("--via", raw.via, "let mpirun start the ranks")
      ->type_name("mpirun")
      ->check(CLI::IsMember({"mpirun"}).description(""));
  app.add_option("-H,--hosts", raw.host_list, "with --print-commands: hosts, and ranks of each")
      ->type_name("HOST:N,..");
  app.add_flag("--print-commands", raw.print_commands,
               "print what to type on each host of -H and exit");
  app.add_flag("-v,--verbose", raw.verbose, "say what is started and how");
  app.add_flag("--version", raw.version, "print the version and exit");
}

void add_torchruns(CLI::App& app, Raw& raw) {
  const auto group = [&](CLI::Option* option) { option->group("As in torchrun"); };
  HostsText& hosts = raw.hosts;
  group(app.add_option("--nnodes", hosts.nnodes, "hosts, each of which runs c10d-run (1)")
            ->type_name("N"));
  group(app.add_option("--node-rank", hosts.node_rank, "of this host, from 0")->type_name("K"));
  group(app.add_flag("--standalone", raw.standalone, "one host"));
  group(app.add_option("--master-addr", hosts.master_addr,
                       "where hosts meet, on host 0; of one host: MASTER_ADDR")
            ->type_name("HOST"));
  group(app.add_option("--master-port", hosts.master_port,
                       "and its port (29500); of one host: MASTER_PORT")
            ->type_name("PORT"));
  group(app.add_option("--local-addr", hosts.local_addr,
                       "address of this host for the others (the one towards host 0)")
            ->type_name("HOST"));
  group(app.add_option("--rdzv-backend", raw.rdzv_backend, "static or c10d")->type_name("NAME"));
  group(app.add_option("--rdzv-endpoint", hosts.rdzv_endpoint,
                       "as --master-addr and -port; of one host: any port")
            ->type_name("HOST:PORT"));
  group(app.add_option("--rdzv-id", hosts.rdzv_id, "name of the job, TORCHELASTIC_RUN_ID")
            ->type_name("ID"));
  group(app.add_option("--rdzv-conf", hosts.rdzv_conf,
                       "join_timeout=S (300), silence=S (15) of other hosts")
            ->type_name("K=V,.."));
  group(app.add_option("--role", raw.role, "ROLE_NAME of the ranks (default)")->type_name("NAME"));
  group(app.add_flag("-m,--module", raw.module, "PROGRAM is a Python module"));
  group(
      app.add_flag("--no-python", raw.no_python, "PROGRAM is no Python script, whatever its name"));
  group(app.add_flag("--run-path", raw.run_path, "PROGRAM is a Python script, whatever its name"));
  group(app.add_option("--monitor-interval", raw.monitor_interval, "without effect: nothing polls")
            ->type_name("S"));
  group(app.add_option("--start-method", raw.start_method, "without effect")->type_name("NAME"));
  group(app.add_option("--event-log-handler", raw.event_log_handler, "without effect")
            ->type_name("NAME"));
  group(app.add_option("--logs-specs", raw.logs_specs, "without effect")->type_name("NAME"));
}

// Options of torchrun that change how a program runs and are not here: better an error than another
// run.
constexpr std::string_view kUnsupported[] = {"--numa-binding", "--virtual-local-rank",
                                             "--signals-to-handle", "--duplicate-stdout-filters",
                                             "--duplicate-stderr-filters"};

[[noreturn]] void unknown_option(const CLI::App& app, const std::string& name) {
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported))
    usage_error(fmt::format("{} of torchrun is not supported yet", name));
  std::vector<std::string> long_names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : option->get_lnames()) long_names.push_back("--" + known);
  const std::vector<std::string_view> views(long_names.begin(), long_names.end());
  const std::string_view near = nearest(name, views);
  usage_error(fmt::format("unknown option {}{}", name,
                          near.empty() ? "" : fmt::format("; did you mean {}?", near)));
}

// An option as it was typed, its name with dashes for underscores.
struct Typed {
  std::string name;
  std::vector<std::string> words;
};

// Takes our options off the front of `args`, which then begins with the program: what follows its
// name is its own, whatever it looks like.
std::vector<Typed> take_options(const CLI::App& app, std::vector<std::string>& args) {
  std::vector<Typed> options;
  std::size_t at = 0;
  while (at < args.size() && args[at].size() > 1 && args[at][0] == '-') {
    std::string text = args[at++];
    if (text == "--") break;
    if (text == "-np") text = "-n";  // mpirun's
    const bool is_long = text[1] == '-';
    const std::size_t equals = text.find('=');
    std::string name = is_long ? text.substr(0, equals) : text.substr(0, 2);
    std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) unknown_option(app, name);
    const bool has_value = is_long ? equals != std::string::npos : text.size() > 2;
    if (is_long && equals + 1 == text.size()) usage_error(fmt::format("{} has no value", text));
    text.replace(0, name.size(), name);
    options.push_back({name, {text}});
    if (has_value || option->get_items_expected() == 0) continue;
    if (at == args.size()) usage_error(fmt::format("{} needs a value", name));
    options.back().words.push_back(args[at++]);
  }
  args.erase(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(at));
  return options;
}

// PET_* as if typed before everything else, so that what is typed wins.
std::vector<std::string> options_from_environment() {
  std::vector<std::string> options;
  for (const EnvVariable& variable : env_variables()) {
    if (!variable.name.starts_with("PET_")) continue;
    const std::optional<std::string> value = env(variable.name);
    if (!value) continue;
    std::string name = "--";
    for (const char c : variable.name.substr(4))
      name += c == '_' ? '-' : static_cast<char>(c - 'A' + 'a');
    options.push_back(name + "=" + *value);
  }
  return options;
}

int ranks_of(const std::string& text) {
  if (text == "auto" || text == "cpu") return allowed_cpus();
  if (text == "gpu" || text == "xpu")
    usage_error(
        fmt::format("--nproc-per-node {}: c10d-run counts no such devices; give a number", text));
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

void check_one_host(const Raw& raw) {
  const std::string& endpoint = raw.hosts.rdzv_endpoint;
  const std::string host = endpoint.substr(0, endpoint.rfind(':'));
  const std::vector<std::string> here = {"", "localhost", "127.0.0.1", "[::1]", host_name()};
  if (std::find(here.begin(), here.end(), host) == here.end())
    usage_error(
        fmt::format("--rdzv-endpoint {}: {} is not this host ({})", endpoint, host, host_name()));
}

void check_several_hosts(const Raw& raw) {
  const auto refuse = [&](bool given, const char* option, const char* instead) {
    if (given)
      usage_error(fmt::format("--nnodes {}: {} works on one host only{}", raw.hosts.nnodes, option,
                              instead));
  };
  refuse(raw.standalone, "--standalone", "");
  refuse(raw.max_restarts > 0, "--max-restarts", "; start the job again on every host");
  refuse(raw.max_failures > 0, "--max-failures", "");
  refuse(!raw.via.empty(), "--via", "; give mpirun the hosts");
  refuse(!raw.print_for.empty(), "--print", "; --print-commands -H node1:4,node2:4 is for several");
}

std::vector<std::string> full_command(const Raw& raw, std::vector<std::string> command,
                                      bool& is_python) {
  is_python = raw.module || raw.run_path || (command.front().ends_with(".py") && !raw.no_python);
  if (!is_python) return command;
  std::vector<std::string> prefix = {"python3", "-u"};
  if (raw.module) prefix.push_back("-m");
  command.insert(command.begin(), prefix.begin(), prefix.end());
  return command;
}

std::map<std::string, std::string> environment_of(const Raw& raw, bool several) {
  std::map<std::string, std::string> environment;
  for (const std::string& entry : raw.environment) {
    const std::size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos)
      usage_error(fmt::format("--env {}: write NAME=VALUE", entry));
    environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
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

std::vector<std::string> warnings_of(const Raw& raw, const MultiHostOptions& hosts) {
  std::vector<std::string> warnings;
  const auto unused = [&](std::string_view option, const std::string& value) {
    if (!value.empty()) warnings.push_back(fmt::format("{} has no effect here", option));
  };
  if (hosts.count == 1) {
    unused("--local-addr", raw.hosts.local_addr);
    unused("--rdzv-conf", raw.hosts.rdzv_conf);
  }
  if (const std::string doubt = doubt_about(hosts); !doubt.empty()) warnings.push_back(doubt);
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

std::string commands_of(const Raw& raw, const char* launcher, const std::vector<Typed>& typed,
                        const std::vector<std::string>& command) {
  if (raw.host_list.empty()) usage_error("--print-commands needs hosts: -H node1:4,node2:4");
  if (raw.ranks != "auto") ranks_of(raw.ranks);
  HostCommands wanted{.hosts = raw.host_list,
                      .ranks = raw.ranks,
                      .launcher = launcher,
                      .address = raw.hosts.master_addr,
                      .port = raw.hosts.master_port,
                      .command = command};
  // Those of which every host has another, and those that ask for this.
  const std::set<std::string> own = {"-n",          "--nproc-per-node", "-H",
                                     "--hosts",     "--print-commands", "--nnodes",
                                     "--node-rank", "--master-addr",    "--master-port"};
  for (const Typed& option : typed)
    if (own.count(option.name) == 0)
      wanted.options.insert(wanted.options.end(), option.words.begin(), option.words.end());
  return host_commands(wanted);
}

RunOptions settle(const Raw& raw, std::vector<std::string> command) {
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
  if (raw.max_failures > 0 && !(raw.print_for.empty() && raw.via.empty()))
    usage_error("--max-failures: only ranks that c10d-run starts itself may go on");
  if (std::isnan(raw.grace)) usage_error("--grace nan: give seconds from 0 to 86400");
  options.grace = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(raw.grace));
  options.prefix = !raw.no_prefix;
  options.verbose = raw.verbose;
  options.print_for = raw.print_for;
  options.via = raw.via;
  options.log_dir = raw.log_dir;
  // Of several hosts nobody knows how many ranks the others have.
  const int known_ranks = several ? std::numeric_limits<int>::max() : options.ranks;
  options.redirects = streams_of("--redirects", raw.redirects, known_ranks);
  options.tees = streams_of("--tee", raw.tee, known_ranks);
  const bool to_files = raw.redirects != "0" || raw.tee != "0";
  if (to_files && raw.log_dir.empty()) usage_error("--redirects and --tee need --log-dir DIR");
  if (!to_files && !raw.log_dir.empty()) options.tees[-1] = {true, true};
  if (!raw.shown.empty()) {
    for (const std::string& part : split(raw.shown, ',')) {
      const std::optional<int> rank = to_int(part);
      if (!rank || *rank < 0 || *rank >= known_ranks)
        usage_error(
            fmt::format("--ranks-filter {}: ranks are 0 to {}", raw.shown, options.ranks - 1));
      options.shown_ranks.insert(*rank);
    }
  }
  options.warnings = warnings_of(raw, options.hosts);
  return options;
}

}  // namespace

RunOptions parse_run_options(int argc, char** argv) {
  CLI::App app(kDescription, "c10d-run");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kFooter);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Raw raw;
  add_own(app, raw);
  add_torchruns(app, raw);
  if (const auto manual = manual_of(app, argc, argv)) throw EarlyExit{0, *manual};

  std::vector<std::string> command(argv + 1, argv + argc);
  const std::vector<Typed> typed = take_options(app, command);
  std::vector<std::string> options = options_from_environment();
  for (const Typed& option : typed)
    options.insert(options.end(), option.words.begin(), option.words.end());
  std::reverse(options.begin(), options.end());  // as CLI11 wants them
  try {
    app.parse(options);
  } catch (const CLI::CallForHelp&) {
    throw EarlyExit{0, app.help()};
  } catch (const CLI::ParseError& error) {
    usage_error(error.what());
  }
  if (raw.version) throw EarlyExit{0, fmt::format("c10d-run {}\n", version())};
  if (command.empty()) usage_error("no program to run: c10d-run -n 2 ./program");
  if (raw.print_commands) return {.host_commands = commands_of(raw, argv[0], typed, command)};
  if (!raw.host_list.empty())
    usage_error("--hosts needs --print-commands: c10d-run logs in to no other host");
  return settle(raw, std::move(command));
}

}}  // namespace c10d::v0
