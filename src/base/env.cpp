// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "c10d/error.h"
#include "src/base/env_table.h"
#include "src/base/suggest.h"

namespace c10d { inline namespace v0 {
namespace {

// clang-format off
constexpr EnvVariable kVariables[] = {
    // Ours.
    {"C10D_RANK", "", "Rank of this process in the job."},
    {"C10D_WORLD_SIZE", "", "Number of ranks in the job."},
    {"C10D_LOCAL_RANK", "", "Rank of this process on its host."},
    {"C10D_LOCAL_WORLD_SIZE", "", "Number of ranks on this host."},
    {"C10D_LAUNCHER", "", "Whose variables count: c10d, torchrun, openmpi, pmi, slurm, k8s, none."},
    {"C10D_STORE", "", "Where the launcher's store is: tcp://host:port."},
    {"C10D_JOB_ID", "", "Name of the job; processes of another job are refused."},
    {"C10D_LAUNCH_ID", "", "Of one c10d-run on one host: what carries it ends with it."},
    {"C10D_LAUNCH_LINE", "", "How c10d-run -H was called: its hosts and its agent, as typed."},
    {"C10D_HOSTS_ID", "", "Of one c10d-run -H: what carries it on its host ends with it."},
    {"C10D_TOKEN_FD", "", "Descriptor of memory that holds the job's 32 secret bytes.", true},
    {"C10D_TOKEN_FILE", "", "File, mode 0600, that holds the job's secret.", true},
    {"C10D_TERMINAL_COLUMNS", "", "Width for a status line: text on rank 0's stderr up to a \\r."},
    {"C10D_RESTART_COUNT", "0", "How often the launcher has restarted the job."},
    {"C10D_SPAWN", "", "Which call of c10d::spawn() started this process."},
    {"C10D_BACKEND", "native", "Backend of groups that name none."},
    {"C10D_BACKEND_PATH", "", "Folders of backend modules, by colons; searched first."},
    {"C10D_TIMEOUT", "300", "Deadline of every operation in seconds."},
    {"C10D_LOG", "warn", "What is logged on stderr: error, warn, info or debug.", false,
     "error warn info debug"},
    {"C10D_RECORD_DIR", "", "Folder for the record of the last ops, when a group breaks."},
    {"C10D_RECORD_SIGNAL", "", "USR1, USR2 or QUIT: this signal shows the record of the last ops.",
     false, "USR1 USR2 QUIT"},
    {"C10D_DEVICE", "local rank", "GPU of this rank; else its rank on the host modulo the GPUs."},
    {"C10D_CUDA_LIBRARY", "libcuda.so.1", "File to open as the CUDA driver."},
    {"C10D_NCCL_ACCUMULATE", "", "f32: nccl adds f16 and bf16 in f32, and rounds once.", false,
     "f32"},
    {"C10D_NCCL_CHECK", "behind", "before: the ranks meet on the host before each op of nccl.",
     false, "behind before"},
    {"C10D_NCCL_WINDOWS", "off", "on: allocate() of nccl gives memory in NCCL's symmetric windows.",
     false, "off on"},
    {"C10D_NCCL_LIBRARY", "libnccl.so.2", "File to open as NCCL."},
    {"C10D_NET_INTERFACE", "", "Networks between hosts: interface, address or 10.1.0.0/16,..."},
    {"C10D_NET_STREAMS", "networks", "native: connections of two ranks on two hosts, 1 to 16."},
    {"C10D_NET_CONGESTION", "", "TCP's congestion control of native; else the system's."},
    {"C10D_GLOO_INTERFACE", "", "Interface or address of the gloo backend; else found out."},
    {"C10D_NATIVE_PLAN", "", "native: force [op=]algorithm[/store[/chunk]],...; rank 0 decides."},
    {"C10D_NATIVE_HOSTS_PLAN", "",
     "native between hosts: force [op=]algorithm,...,overlap; rank 0 decides."},
    // torchrun and what it sets.
    {"RANK", "", "torchrun: rank."},
    {"WORLD_SIZE", "", "torchrun: number of ranks."},
    {"LOCAL_RANK", "", "torchrun: rank on the host."},
    {"LOCAL_WORLD_SIZE", "", "torchrun: number of ranks on the host."},
    {"GROUP_RANK", "", "torchrun: rank of the host's agent."},
    {"GROUP_WORLD_SIZE", "", "torchrun: number of agents."},
    {"MASTER_ADDR", "", "torchrun: host of rank 0; the store is there when C10D_STORE is unset."},
    {"MASTER_PORT", "", "torchrun: port of rank 0's store when C10D_STORE is unset."},
    {"TORCHELASTIC_USE_AGENT_STORE", "", "True: torchrun itself serves at MASTER_PORT."},
    {"OMP_NUM_THREADS", "cores per rank", "Threads of a rank; c10d-run sets it where it is unset."},
    // Options of c10d-run, as torchrun takes them from the environment.
    {"PET_NNODES", "1", "c10d-run --nnodes."},
    {"PET_NPROC_PER_NODE", "1", "c10d-run --nproc-per-node."},
    {"PET_NODE_RANK", "0", "c10d-run --node-rank."},
    {"PET_MASTER_ADDR", "", "c10d-run --master-addr."},
    {"PET_MASTER_PORT", "", "c10d-run --master-port."},
    {"PET_LOCAL_ADDR", "", "c10d-run --local-addr."},
    {"PET_STANDALONE", "", "c10d-run --standalone."},
    {"PET_RDZV_BACKEND", "", "c10d-run --rdzv-backend."},
    {"PET_RDZV_ENDPOINT", "", "c10d-run --rdzv-endpoint."},
    {"PET_RDZV_ID", "", "c10d-run --rdzv-id."},
    {"PET_RDZV_CONF", "", "c10d-run --rdzv-conf."},
    {"PET_MAX_RESTARTS", "0", "c10d-run --max-restarts."},
    {"PET_MONITOR_INTERVAL", "", "c10d-run --monitor-interval."},
    {"PET_START_METHOD", "", "c10d-run --start-method."},
    {"PET_ROLE", "default", "c10d-run --role."},
    {"PET_LOG_DIR", "", "c10d-run --log-dir."},
    {"PET_REDIRECTS", "0", "c10d-run --redirects."},
    {"PET_TEE", "0", "c10d-run --tee."},
    {"PET_LOCAL_RANKS_FILTER", "", "c10d-run --local-ranks-filter."},
    {"PET_SHUTDOWN_TIMEOUT", "5", "c10d-run --shutdown-timeout."},
    {"PET_VIRTUAL_LOCAL_RANK", "", "c10d-run --virtual-local-rank."},
    {"PET_SIGNALS_TO_HANDLE", "", "c10d-run --signals-to-handle."},
    {"PET_DUPLICATE_STDOUT_FILTERS", "", "c10d-run --duplicate-stdout-filters."},
    {"PET_DUPLICATE_STDERR_FILTERS", "", "c10d-run --duplicate-stderr-filters."},
    {"CUDA_VISIBLE_DEVICES", "", "Devices that c10d-run --virtual-local-rank hands out."},
    // NCCL's: its interface, and its test modes for several ranks on one GPU.
    {"NCCL_SOCKET_IFNAME", "", "NCCL: interface of its connections; c10d-run sets lo on one host."},
    {"NCCL_HOSTID", "", "NCCL: name of the host; one per rank lets ranks share a GPU, for tests."},
    {"NCCL_MULTI_RANK_GPU_ENABLE", "", "NCCL 2.30 or newer: ranks may share a GPU."},
    // Open MPI.
    {"OMPI_COMM_WORLD_RANK", "", "Open MPI: rank."},
    {"OMPI_COMM_WORLD_SIZE", "", "Open MPI: number of ranks."},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "", "Open MPI: rank on the host."},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "", "Open MPI: number of ranks on the host."},
    {"OMPI_MCA_btl_tcp_if_include", "", "Open MPI: its networks; else of C10D_NET_INTERFACE."},
    {"OMPI_MCA_btl_tcp_if_exclude", "", "Open MPI: those it leaves out."},
    // PMI, PMIx and kin.
    {"PMI_RANK", "", "MPICH, Intel MPI: rank."},
    {"PMI_SIZE", "", "MPICH, Intel MPI: number of ranks."},
    {"PMIX_RANK", "", "PMIx: rank; the size is PMI_SIZE."},
    {"MPI_LOCALRANKID", "", "MPICH, Intel MPI: rank on the host."},
    {"MPI_LOCALNRANKS", "", "MPICH, Intel MPI: number of ranks on the host."},
    {"MV2_COMM_WORLD_RANK", "", "MVAPICH: rank."},
    {"MV2_COMM_WORLD_SIZE", "", "MVAPICH: number of ranks."},
    {"MV2_COMM_WORLD_LOCAL_RANK", "", "MVAPICH: rank on the host."},
    {"MV2_COMM_WORLD_LOCAL_SIZE", "", "MVAPICH: number of ranks on the host."},
    {"PALS_RANKID", "", "Cray PALS: rank; the size is PMI_SIZE."},
    {"PALS_LOCAL_RANKID", "", "Cray PALS: rank on the host."},
    {"FLUX_TASK_RANK", "", "Flux: rank."},
    {"FLUX_JOB_SIZE", "", "Flux: number of ranks."},
    {"FLUX_TASK_LOCAL_ID", "", "Flux: rank on the host."},
    {"JSM_NAMESPACE_RANK", "", "LSF jsrun: rank."},
    {"JSM_NAMESPACE_SIZE", "", "LSF jsrun: number of ranks."},
    {"JSM_NAMESPACE_LOCAL_RANK", "", "LSF jsrun: rank on the host."},
    {"JSM_NAMESPACE_LOCAL_SIZE", "", "LSF jsrun: number of ranks on the host."},
    // Slurm.
    {"SLURM_PROCID", "", "Slurm: rank."},
    {"SLURM_NTASKS", "", "Slurm: number of ranks."},
    {"SLURM_STEP_ID", "", "Slurm: step; rank and size count inside a step of srun only."},
    {"SLURM_STEP_NUM_TASKS", "", "Slurm: number of ranks of the step."},
    {"SLURM_STEP_TASKS_PER_NODE", "", "Slurm: ranks of the step on each host."},
    {"SLURM_LOCALID", "", "Slurm: rank on the host."},
    {"SLURM_NODEID", "", "Slurm: number of the host."},
    {"SLURM_JOB_ID", "", "Slurm: job; with step and port, where ranks of one host meet."},
    {"SLURM_JOB_NODELIST", "", "Slurm: hosts of the job; c10d-run -H reaches them by srun."},
    {"SLURM_NODELIST", "", "Slurm: the same, of old."},
    {"SLURM_SRUN_COMM_PORT", "", "Slurm: the port of this srun."},
    // Kubernetes.
    {"JOB_COMPLETION_INDEX", "", "Kubernetes: rank; the size is C10D_WORLD_SIZE or WORLD_SIZE."},
    // The user's habits.
    {"NO_COLOR", "", "Any value: no colours."},
    {"CLICOLOR_FORCE", "", "Any value but 0: colours even when the output is no terminal."},
    {"FORCE_COLOR", "", "The same."},
    {"TERM", "", "dumb: no colours, no progress line."},
    {"COLUMNS", "", "Width of tables when the output is no terminal."},
    {"CI", "", "Any value: no progress line."},
    {"LC_ALL", "", "C or POSIX: tables are drawn in ASCII."},
    {"PATH", "", "Where c10d-run looks for a program that is named without a slash."},
    {"HOME", "", "Home folder: its .cache is the cache folder where XDG_CACHE_HOME is unset."},
    {"XDG_CACHE_HOME", "~/.cache", "Where c10d-bench tune keeps what it measured: c10d/tune."},
    {"TMPDIR", "/tmp", "Folder of temporary files."},
};
// clang-format on

const EnvVariable* find(std::string_view name) noexcept {
  const auto* found = std::find_if(std::begin(kVariables), std::end(kVariables),
                                   [&](const EnvVariable& entry) { return entry.name == name; });
  return found == std::end(kVariables) ? nullptr : found;
}

}  // namespace

std::span<const EnvVariable> env_variables() noexcept { return kVariables; }

std::optional<std::string> env(std::string_view name) {
  const EnvVariable* entry = find(name);
  if (entry == nullptr) {
    throw InvalidArgument(
        fmt::format("environment variable {} is read but not documented; add it to the table in "
                    "src/base/env.cpp",
                    name));
  }
  const char* value = std::getenv(entry->name.data());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::int64_t> env_integer(std::string_view name, std::int64_t min, std::int64_t max) {
  const std::optional<std::string> text = env(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stopped != end || value < min || value > max) {
    throw InvalidArgument(
        fmt::format("{}={} is no whole number from {} to {}", name, *text, min, max));
  }
  return value;
}

std::optional<std::string> env_choice(std::string_view name) {
  const std::optional<std::string> text = env(name);
  if (!text) return std::nullopt;
  std::vector<std::string_view> words;
  for (std::string_view rest = find(name)->values; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    words.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (std::find(words.begin(), words.end(), *text) != words.end()) return text;
  throw InvalidArgument(fmt::format("{}={} is none of: {}", name, *text, fmt::join(words, ", ")));
}

std::vector<UnknownEnv> unknown_env() {
  std::vector<std::string_view> known;
  for (const EnvVariable& entry : kVariables) known.push_back(entry.name);
  std::vector<UnknownEnv> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("C10D_") || find(name) != nullptr) continue;
    unknown.push_back({std::string(name), std::string(nearest(name, known))});
  }
  return unknown;
}

}}  // namespace c10d::v0
