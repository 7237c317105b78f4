// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "c10d/env.h"
#include "c10d/error.h"
#include "src/base/host.h"
#include "src/net/address.h"

namespace c10d { inline namespace v0 {
namespace {

using Environment = std::map<std::string, std::string>;

Environment callers_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

void add_own(Environment& to, const LaunchOptions& options, const JobFacts& job, int local_rank) {
  to["C10D_RANK"] = std::to_string(job.first_rank + local_rank);
  to["C10D_WORLD_SIZE"] = std::to_string(job.size);
  to["C10D_LOCAL_RANK"] = std::to_string(local_rank);
  to["C10D_LOCAL_WORLD_SIZE"] = std::to_string(options.ranks);
  to["C10D_STORE"] = "tcp://" + show_host_port(job.store_host, job.store_port);
  to["C10D_JOB_ID"] = job.id;
  to["C10D_LAUNCH_ID"] = job.launch_id;
  to["C10D_TOKEN_FD"] = std::to_string(job.token_fd);
  // The name of another host need not lead to it; the address at which hosts met does.
  if (!job.local_address.empty() && to["C10D_NET_INTERFACE"].empty())
    to["C10D_NET_INTERFACE"] = job.local_address;
  // Of an outer job, and no business of this one.
  to.erase("C10D_TOKEN_FILE");
  to.erase("C10D_LAUNCHER");
  to.erase("C10D_TERMINAL_COLUMNS");
  if (job.status_columns > 0 && job.first_rank + local_rank == 0)
    to["C10D_TERMINAL_COLUMNS"] = std::to_string(job.status_columns);
}

void add_torchruns(Environment& to, const LaunchOptions& options, const JobFacts& job,
                   int local_rank) {
  to["LOCAL_RANK"] = std::to_string(options.virtual_local_rank ? 0 : local_rank);
  to["LOCAL_WORLD_SIZE"] = std::to_string(options.ranks);
  for (const char* name : {"RANK", "ROLE_RANK"})
    to[name] = std::to_string(job.first_rank + local_rank);
  for (const char* name : {"WORLD_SIZE", "ROLE_WORLD_SIZE"}) to[name] = std::to_string(job.size);
  to["GROUP_RANK"] = std::to_string(options.hosts.number);
  to["GROUP_WORLD_SIZE"] = std::to_string(options.hosts.count);
  to["ROLE_NAME"] = "default";
  to["MASTER_ADDR"] = job.master_host;
  to["MASTER_PORT"] = std::to_string(job.master_port);
  to["TORCHELASTIC_RESTART_COUNT"] = "0";
  to["TORCHELASTIC_MAX_RESTARTS"] = "0";
  to["TORCHELASTIC_RUN_ID"] = job.id;
  // PyTorch's rank 0 serves a store of its own at MASTER_PORT; ours speaks another protocol.
  to["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  to.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
}

// OMP_NUM_THREADS: with few CPUs of its own no more than those.
int threads_of(const LaunchOptions& options, const JobFacts& job, int local_rank) {
  const int share = std::max(1, allowed_cpus() / options.ranks);
  if (job.cpus.empty()) return share;
  return std::min(share, static_cast<int>(job.cpus[static_cast<std::size_t>(local_rank)].size()));
}

// The one that the local rank has in the list of CUDA_VISIBLE_DEVICES, else its number.
std::string device_in(const Environment& environment, int ranks, int local_rank) {
  constexpr const char* kName = "CUDA_VISIBLE_DEVICES";
  const auto found = environment.find(kName);
  if (found == environment.end()) return std::to_string(local_rank);
  int count = 0;
  for (std::string_view rest = found->second; !rest.empty(); ++count) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    if (count == local_rank) return std::string(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  throw InvalidArgument(fmt::format(
      "{}={} names {} devices, and each of {} ranks needs one for its virtual local rank", kName,
      found->second, count, ranks));
}

}  // namespace

void check_devices(const LaunchOptions& options) {
  Environment environment = callers_environment();
  for (const auto& [name, value] : options.environment) environment[name] = value;
  device_in(environment, options.ranks, options.ranks - 1);
}

std::vector<std::string> rank_environment(const LaunchOptions& options, const JobFacts& job,
                                          int local_rank) {
  Environment environment = callers_environment();
  environment.erase("C10D_SPAWN");  // of the job of this process
  add_torchruns(environment, options, job, local_rank);
  environment["C10D_RESTART_COUNT"] = "0";
  if (!env("OMP_NUM_THREADS"))
    environment["OMP_NUM_THREADS"] = std::to_string(threads_of(options, job, local_rank));
  // NCCL's sockets know no token, and listen on the first interface unless they are told.
  if (job.size == options.ranks) environment.try_emplace("NCCL_SOCKET_IFNAME", "lo");
  for (const auto& [name, value] : options.environment) environment[name] = value;
  if (options.virtual_local_rank)
    environment["CUDA_VISIBLE_DEVICES"] = device_in(environment, options.ranks, local_rank);
  add_own(environment, options, job, local_rank);

  std::vector<std::string> entries;
  entries.reserve(environment.size());
  for (const auto& [name, value] : environment) entries.push_back(name + '=' + value);
  return entries;
}

}}  // namespace c10d::v0
