// SPDX-License-Identifier: BSD-3-Clause
#include "tools/info/facts.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <string>

#include "c10d/capability.h"
#include "c10d/cuda.h"
#include "c10d/env.h"
#include "c10d/error.h"
#include "c10d/init.h"
#include "c10d/spi/backend.h"
#include "src/backends/native/native.h"
#include "src/base/cpu_topology.h"
#include "src/base/env_table.h"
#include "src/base/host.h"
#include "src/launch/spawn.h"
#include "src/sync/wait.h"

namespace c10d { inline namespace v0 {
namespace {

using Json = nlohmann::ordered_json;

Json version_facts() {
  return {{"version", std::string(kVersion)},
          {"library", version()},
          {"module_abi", kBackendAbiVersion}};
}

// What groups of 2, 4 and 8 ranks here would do and take.
Json native_facts() {
  Json facts = Json::object();
  for (const int ranks : {2, 4, 8})
    facts[fmt::format("{}_ranks", ranks)] =
        fmt::format("{}; {} KiB per rank", describe(wait_policy(ranks, allowed_cpus())),
                    native_bytes_per_rank(ranks) >> 10);
  return facts;
}

Json host_facts() {
  utsname system{};
  uname(&system);
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const auto places = cpu_places();
  return {{"name", host_name()},
          {"kernel", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"cpu", cpu_model()},
          {"cpus_online", sysconf(_SC_NPROCESSORS_ONLN)},
          {"cpus_allowed", allowed_cpus()},
          {"numa_nodes", count_places(places, &CpuPlace::numa_node)},
          {"packages", count_places(places, &CpuPlace::package)},
          {"l3_groups", count_places(places, &CpuPlace::l3)},
          {"memory_bytes", page * sysconf(_SC_PHYS_PAGES)}};
}

// "13.0" of 13000.
std::string cuda_version(int version) {
  return version == 0 ? "none" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// With what to install where the driver is not there; another file is the user's affair.
std::string why_no_gpu(const cuda::DriverInfo& driver) {
  const std::string& why = cuda::why_no_gpu();
  if (driver.path != "libcuda.so.1" || !why.starts_with("no CUDA driver")) return why;
  return why +
         "; NVIDIA's driver brings it: on Debian the packages nvidia-driver and libcuda1 "
         "(non-free), "
         "on Ubuntu libnvidia-compute-N; a container gets it from its host (docker run --gpus all)";
}

Json gpu_facts() {
  const cuda::DriverInfo driver = cuda::driver_info();
  Json gpus = Json::array();
  for (int device = 0; device < cuda::device_count(); ++device) {
    try {
      const cuda::DeviceInfo info = cuda::device_info(device);
      gpus.push_back({{"device", device},
                      {"name", info.name},
                      {"uuid", info.uuid},
                      {"pci_bus_id", info.pci_bus_id},
                      {"memory_bytes", info.memory_bytes},
                      {"l2_bytes", info.l2_bytes},
                      {"multiprocessors", info.multiprocessors},
                      {"compute_capability", fmt::format("{}.{}", info.compute_capability / 10,
                                                         info.compute_capability % 10)}});
    } catch (const DistError& error) {  // of a GPU that is lost, or used up
      gpus.push_back({{"device", device}, {"error", error.what()}});
    }
  }
  return {{"driver", driver.path},
          {"cuda", cuda_version(driver.version)},
          {"why_none", why_no_gpu(driver)},
          {"devices", gpus}};
}

Json launch_facts() try {
  const LaunchInfo info = detect_launch();
  return {{"launcher", info.launcher},
          {"rank", info.rank},
          {"size", info.size},
          {"local_rank", info.local_rank},
          {"local_size", info.local_size},
          {"evidence", info.evidence}};
} catch (const InvalidArgument& error) {
  return {{"error", error.what()}};
}

// What a user must know of a backend that works here.
std::string note_of(const BackendInfo& info) {
  if (info.name != "nccl" || !info.available) return {};
  const std::string known = "NCCL's own connections know no token";
  if (const auto interface = env("NCCL_SOCKET_IFNAME"))
    return fmt::format("{}; their interface is {} (NCCL_SOCKET_IFNAME)", known, *interface);
  return known +
         ", and NCCL chooses their interface: NCCL_SOCKET_IFNAME names one; on one host "
         "c10d-run sets lo";
}

Json backend_facts() {
  Json backends = Json::array();
  for (const BackendInfo& info : list_backends()) {
    backends.push_back({{"name", info.name},
                        {"available", info.available},
                        {"reason", info.reason},
                        {"version", info.version},
                        {"path", info.path},
                        {"note", note_of(info)}});
  }
  return backends;
}

Json support_facts(const std::string& backend, const Query& query) {
  const Support support = backend_supports(backend, query);
  if (!support) return {{"ok", false}, {"reason", support.reason}};
  Json fact = {{"ok", true}};
  if (!support.composed.empty()) fact["composed"] = support.composed;
  return fact;
}

Json op_facts(const std::string& backend, OpKind op, DeviceType device) {
  Json facts = Json::object();
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const std::string name(to_string(dtype));
    if (!is_reduction(op)) {
      facts[name] = support_facts(backend, {.op = op, .dtype = dtype, .device = device});
      continue;
    }
    for (int k = 0; k < kReduceOpCount; ++k) {
      const auto kind = static_cast<ReduceOp::Kind>(k);
      facts[name][std::string(to_string(kind))] =
          support_facts(backend, {.op = op, .dtype = dtype, .reduce_op = kind, .device = device});
    }
  }
  return facts;
}

// backend -> device -> op -> dtype -> [reduce op ->] {ok, reason, composed}
Json capability_facts() {
  Json facts = Json::object();
  for (const BackendInfo& info : list_backends()) {
    if (!info.available) continue;
    for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda})
      for (int op = 0; op < kOpCount; ++op) {
        const auto kind = static_cast<OpKind>(op);
        facts[info.name][std::string(to_string(device))][std::string(to_string(kind))] =
            op_facts(info.name, kind, device);
      }
  }
  return facts;
}

Json resource_limit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return nullptr;
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return limit.rlim_cur;
}

Json limit_facts() {
  const StoreLimits store;
  const auto seconds = [](Duration duration) {
    return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  };
  return {{"ranks_per_host", kMaxLocalRanks},
          {"operation_timeout_seconds", seconds(kDefaultTimeout)},
          {"store_timeout_seconds", seconds(kDefaultStoreTimeout)},
          {"store_key_bytes", store.key_bytes},
          {"store_value_bytes", store.value_bytes},
          {"store_total_bytes", store.total_bytes},
          {"store_keys", store.keys},
          {"store_clients", store.clients},
          {"store_output_queue_bytes", store.output_queue_bytes},
          {"open_files", resource_limit(RLIMIT_NOFILE)},
          {"processes", resource_limit(RLIMIT_NPROC)},
          {"locked_memory_bytes", resource_limit(RLIMIT_MEMLOCK)}};
}

Json environment_facts() {
  Json variables = Json::array();
  for (const EnvVariable& variable : env_variables()) {
    const std::optional<std::string> value = env(variable.name);
    Json entry = {{"name", std::string(variable.name)}};
    if (value) {
      entry["value"] = variable.secret ? "(secret)" : *value;
    } else if (!variable.default_value.empty()) {
      entry["value"] = std::string(variable.default_value);
    } else {
      entry["value"] = nullptr;
    }
    entry["source"] = value ? "environment" : variable.default_value.empty() ? "unset" : "default";
    entry["default"] = std::string(variable.default_value);
    entry["help"] = std::string(variable.help);
    variables.push_back(entry);
  }
  for (const UnknownEnv& variable : unknown_env()) {
    variables.push_back({{"name", variable.name},
                         {"value", "(unknown)"},
                         {"source", "unknown"},
                         {"default", ""},
                         {"help", variable.nearest.empty() ? "Nothing reads it."
                                                           : "Nothing reads it; did you mean " +
                                                                 variable.nearest + "?"}});
  }
  return variables;
}

}  // namespace

Json collect_facts() {
  return {{"version", version_facts()},         {"host", host_facts()},
          {"native", native_facts()},           {"gpus", gpu_facts()},
          {"launch", launch_facts()},           {"backends", backend_facts()},
          {"capabilities", capability_facts()}, {"limits", limit_facts()},
          {"environment", environment_facts()}};
}

}}  // namespace c10d::v0
