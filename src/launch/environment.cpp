// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "c10d/env.h"
#include "src/core/host.h"

namespace c10d::inline v0 {
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

void add_own(Environment& to, const JobFacts& job, const std::string& rank,
             const std::string& size) {
  to["C10D_RANK"] = to["C10D_LOCAL_RANK"] = rank;
  to["C10D_WORLD_SIZE"] = to["C10D_LOCAL_WORLD_SIZE"] = size;
  to["C10D_STORE"] = fmt::format("tcp://127.0.0.1:{}", job.store_port);
  to["C10D_JOB_ID"] = job.id;
  to["C10D_TOKEN_FD"] = std::to_string(job.token_fd);
  // Of an outer job, and no business of this one.
  to.erase("C10D_TOKEN_FILE");
  to.erase("C10D_LAUNCHER");
}

void add_torchruns(Environment& to, const JobFacts& job, const std::string& rank,
                   const std::string& size) {
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) to[name] = rank;
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) to[name] = size;
  to["GROUP_RANK"] = "0";
  to["GROUP_WORLD_SIZE"] = "1";
  to["ROLE_NAME"] = "default";
  to["MASTER_ADDR"] = "127.0.0.1";
  to["MASTER_PORT"] = std::to_string(job.master_port);
  to["TORCHELASTIC_RESTART_COUNT"] = "0";
  to["TORCHELASTIC_MAX_RESTARTS"] = "0";
  to["TORCHELASTIC_RUN_ID"] = job.id;
  // PyTorch's rank 0 serves a store of its own at MASTER_PORT; ours speaks another protocol.
  to["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  to.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
}

}  // namespace

std::vector<std::string> rank_environment(const LaunchOptions& options, const JobFacts& job,
                                          int rank) {
  Environment environment = callers_environment();
  const std::string rank_text = std::to_string(rank);
  const std::string size_text = std::to_string(options.ranks);
  add_torchruns(environment, job, rank_text, size_text);
  environment["C10D_RESTART_COUNT"] = "0";
  if (!env("OMP_NUM_THREADS"))
    environment["OMP_NUM_THREADS"] = std::to_string(std::max(1, allowed_cpus() / options.ranks));
  for (const auto& [name, value] : options.environment) environment[name] = value;
  add_own(environment, job, rank_text, size_text);

  std::vector<std::string> entries;
  entries.reserve(environment.size());
  for (const auto& [name, value] : environment) entries.push_back(name + '=' + value);
  return entries;
}

}  // namespace c10d::inline v0
