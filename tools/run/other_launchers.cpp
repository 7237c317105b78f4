// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/other_launchers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <vector>

#include "c10d/env.h"
#include "src/base/host.h"
#include "src/net/network.h"
#include "src/net/reserve_port.h"
#include "src/net/socket.h"
#include "src/net/token.h"
#include "tools/run/args.h"

namespace c10d { inline namespace v0 {
namespace {

using Arguments = std::vector<std::string>;

void append(Arguments& to, const Arguments& arguments) {
  to.insert(to.end(), arguments.begin(), arguments.end());
}

// The user's own variables, without what c10d-run adds for itself. Ranks that these launchers start
// on one host find each other without an address.
Arguments variables(const RunOptions& options) {
  Arguments arguments;
  for (const auto& [name, value] : options.environment)
    if (name != "ROLE_NAME" && !name.starts_with("TORCHELASTIC_"))
      arguments.push_back(name + '=' + value);
  return arguments;
}

// What goes before the launcher: the directory, which ranks inherit, and `variables` for launchers
// that hand their own environment on.
Arguments around(const RunOptions& options, const Arguments& variables) {
  Arguments arguments;
  if (!options.directory.empty()) arguments = {"-C", options.directory};
  append(arguments, variables);
  if (!arguments.empty()) arguments.insert(arguments.begin(), "env");
  if (options.timeout.count() > 0)
    append(
        arguments,
        {"timeout", fmt::format("{:g}", std::chrono::duration<double>(options.timeout).count())});
  return arguments;
}

Arguments srun(const RunOptions& options) {
  Arguments arguments = around(options, variables(options));
  append(arguments, {"srun", "--nodes=1", fmt::format("--ntasks={}", options.ranks),
                     "--kill-on-bad-exit=1", "--export=ALL"});
  if (options.prefix) arguments.push_back("--label");
  append(arguments, options.command);
  return arguments;
}

// On hosts that mpirun reaches itself. Its daemons have their connections before a rank runs, so
// that only this line can tell them the network.
Arguments mpirun_over_hosts(const RunOptions& options) {
  std::string hosts;
  int ranks = 0;
  for (const HostLine& line : options.host_lines) {
    hosts += (hosts.empty() ? "" : ",") + line.host + ':' + line.ranks;
    ranks += to_int(line.ranks).value_or(0);
  }
  Arguments arguments = {"-n", std::to_string(ranks), "-H", hosts, "--bind-to", "none"};
  std::string subnets;
  for (const Network& network : chosen_networks())
    subnets += (subnets.empty() ? "" : ",") + network.subnet;
  if (!subnets.empty())
    for (const char* layer : {"oob_tcp_if_include", "btl_tcp_if_include"})
      append(arguments, {"--mca", layer, subnets});
  std::map<std::string, std::string> environment = {
      {"MASTER_ADDR", options.host_lines.front().host},
      {"MASTER_PORT", kDefaultPort},
      {"C10D_TOKEN_FILE",
       env("C10D_TOKEN_FILE").value_or(env("HOME").value_or("") + "/.c10d-token")}};
  if (const auto network = env("C10D_NET_INTERFACE")) environment["C10D_NET_INTERFACE"] = *network;
  for (const auto& [name, value] : environment)
    if (!options.environment.contains(name)) append(arguments, {"-x", name + '=' + value});
  return arguments;
}

Arguments mpirun(const RunOptions& options) {
  Arguments arguments = around(options, {});
  arguments.push_back("mpirun");
  if (geteuid() == 0) arguments.push_back("--allow-run-as-root");  // else Open MPI refuses
  if (!options.host_lines.empty()) {
    append(arguments, mpirun_over_hosts(options));
  } else {
    append(arguments, {"-n", std::to_string(options.ranks), "--bind-to", "none"});
    if (options.ranks > allowed_cpus()) arguments.push_back("--oversubscribe");
  }
  if (options.prefix) arguments.push_back("--tag-output");
  for (const std::string& variable : variables(options)) append(arguments, {"-x", variable});
  append(arguments, options.command);
  return arguments;
}

// With the underscores that every release of torchrun knows.
Arguments torchrun(const RunOptions& options) {
  Arguments arguments = around(options, variables(options));
  append(arguments,
         {"torchrun", "--standalone", fmt::format("--nproc_per_node={}", options.ranks)});
  if (options.max_restarts > 0)
    arguments.push_back(fmt::format("--max_restarts={}", options.max_restarts));
  if (!options.is_python) {
    arguments.push_back("--no_python");
    append(arguments, options.command);
  } else {  // torchrun adds the interpreter itself
    append(arguments, Arguments(options.command.begin() + 2, options.command.end()));
  }
  return arguments;
}

}  // namespace

std::string equivalent_line(const RunOptions& options) {
  const Arguments arguments = options.print_for == "srun"     ? srun(options)
                              : options.print_for == "mpirun" ? mpirun(options)
                                                              : torchrun(options);
  std::string line;
  for (const std::string& argument : arguments)
    line += (line.empty() ? "" : " ") + quoted(argument);
  return line;
}

void become_mpirun(const RunOptions& options) {
  // By environment where Open MPI and MPICH have different flags; ranks on this host inherit it
  // from both.
  for (const char* name : {"OMPI_MCA_rmaps_base_oversubscribe", "OMPI_ALLOW_RUN_AS_ROOT",
                           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(name, "1", 0);
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  // Both end their ranks then.
  if (options.timeout.count() > 0)
    setenv("MPIEXEC_TIMEOUT",
           std::to_string(std::chrono::ceil<std::chrono::seconds>(options.timeout).count()).c_str(),
           1);
  if (!options.directory.empty() && chdir(options.directory.c_str()) != 0)
    throw std::runtime_error(fmt::format("--wdir {}: {}", options.directory, error_text(errno)));
  setenv("C10D_BACKEND", "mpi", 0);  // unless the user chose another
  if (options.environment.count("MASTER_ADDR") == 0) setenv("MASTER_ADDR", "127.0.0.1", 1);
  if (options.environment.count("MASTER_PORT") == 0)
    setenv("MASTER_PORT", std::to_string(hold_port().second).c_str(), 1);
  setenv("C10D_JOB_ID", ("c10d-" + to_hex(random_bytes(8))).c_str(), 1);

  Arguments arguments = {"mpirun", "-n", std::to_string(options.ranks)};
  append(arguments, options.command);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw std::runtime_error(fmt::format("cannot start {}: {}", arguments[0], error_text(errno)));
}

}}  // namespace c10d::v0
