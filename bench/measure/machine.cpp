// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "bench/text/format.h"
#include "c10d/capability.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value behind `name :` in /proc/cpuinfo.
std::string cpuinfo(std::string_view name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// What launchers set for each rank: no choice of the user's, and new in every launch.
bool is_of_launcher(const std::string& name) {
  for (const std::string_view prefix :
       {"C10D_RANK", "C10D_WORLD_SIZE", "C10D_LOCAL_", "C10D_STORE", "C10D_JOB_ID", "C10D_LAUNCH_",
        "C10D_RESTART_COUNT", "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix",
        "OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_RUNTIME", "OMPI_MCA_rmaps_base_oversubscribe",
        "OMPI_MCA_mpi_oversubscribe", "OMPI_MCA_hwloc_base_binding_policy"})
    if (name.starts_with(prefix)) return true;
  return false;
}

bool looks_secret(const std::string& name) {
  const std::string text = upper(name);
  for (const std::string_view word :
       {"TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL", "COOKIE", "AUTH"})
    if (text.find(word) != std::string::npos) return true;
  return false;
}

// What the host has, or the control group may still have, whichever is less.
std::uint64_t free_bytes() {
  std::uint64_t kilobytes = 0;
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (std::string unit; file >> name >> kilobytes && name != "MemAvailable:";)
    std::getline(file, unit);
  std::uint64_t granted = 0, used = 0;  // stay 0 where the file has no number
  std::istringstream(first_line("/sys/fs/cgroup/memory.max")) >> granted;
  std::istringstream(first_line("/sys/fs/cgroup/memory.current")) >> used;
  return std::min(name == "MemAvailable:" ? kilobytes * 1024 : UINT64_MAX,
                  granted > 0 ? granted - std::min(granted, used) : UINT64_MAX);
}

std::string kernel_release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

// Timer interrupts per second, where the configuration of the kernel can be read.
std::optional<int> kernel_hz() {
  std::ifstream file("/boot/config-" + kernel_release());
  constexpr std::string_view kName = "CONFIG_HZ=";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kName)) return std::atoi(line.c_str() + kName.size());
  return std::nullopt;
}

// "none", or the hypervisor as the machine names it, or "yes" when it does not.
std::string virtualisation() {
  const std::string flags = " " + cpuinfo("flags") + " ";
  if (flags.find(" hypervisor ") == std::string::npos) return "none";
  const std::string product = first_line("/sys/class/dmi/id/sys_vendor");
  return product.empty() ? "yes" : product;
}

}  // namespace

int numa_nodes() {
  int nodes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node") && name.size() > 4 &&
        std::isdigit(static_cast<unsigned char>(name[4])) != 0)
      ++nodes;
  }
  return std::max(1, nodes);
}

std::optional<double> cgroup_cpus() {
  std::string quota;
  double period = 0;
  std::istringstream v2(first_line("/sys/fs/cgroup/cpu.max"));
  if (v2 >> quota >> period) {
    if (quota == "max" || period <= 0) return std::nullopt;
    return std::strtod(quota.c_str(), nullptr) / period;
  }
  const double v1 = std::strtod(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").c_str(), nullptr);
  period = std::strtod(first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us").c_str(), nullptr);
  if (v1 <= 0 || period <= 0) return std::nullopt;
  return v1 / period;
}

std::uint64_t last_level_bytes() {
  for (const int name : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (const long bytes = sysconf(name); bytes > 0) return static_cast<std::uint64_t>(bytes);
  return std::uint64_t{32} << 20;
}

double load_average() {
  std::array<double, 1> load{};
  return getloadavg(load.data(), 1) == 1 ? load[0] : 0;
}

std::optional<std::string> other_work() {
  const double load = load_average();
  const long cpus = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  if (load <= 0.3 * static_cast<double>(cpus)) return std::nullopt;
  return fmt::format("other work runs here: load {:.1f} on {} CPU{}", load, cpus,
                     cpus == 1 ? "" : "s");
}

void refuse_beyond_memory(std::uint64_t bytes, std::string_view what, std::string_view remedy) {
  const std::uint64_t free = free_bytes();
  if (bytes > free)
    throw InvalidArgument(fmt::format("{}: {} of memory, more than the {} that are free; {}", what,
                                      bytes_text(bytes), bytes_text(free >> 20 << 20), remedy));
}

std::map<std::string, std::string> relevant_variables() {
  constexpr std::array<std::string_view, 9> prefixes = {
      "C10D_", "NCCL_", "UCX_",   "OMPI_MCA_",           "GLOO_",
      "FI_",   "OMP_",  "MPICH_", "CUDA_VISIBLE_DEVICES"};
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = text.substr(0, equals);
    const bool listed = std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
      return name.starts_with(prefix);
    });
    if (listed && !looks_secret(name) && !is_of_launcher(name))
      found[name] = text.substr(equals + 1);
  }
  return found;
}

Json environment_json(const std::map<std::string, std::string>& about) {
  Json line;
  line["v"] = 1;
  line["t"] = "env";
  line["rank"] = 0;
  line["host"] = host_name();
  line["cpu"] = cpu_model();
  line["cores"] = allowed_cpus();
  line["numa"] = numa_nodes();
  const std::optional<double> granted = cgroup_cpus();
  line["cgroup_cpus"] = granted ? Json(*granted) : Json(nullptr);
  line["kernel"] = kernel_release();
  const std::optional<int> hz = kernel_hz();
  line["hz"] = hz ? Json(*hz) : Json(nullptr);
  line["llc_bytes"] = last_level_bytes();
  line["virt"] = virtualisation();
  line["gpu"] = nullptr;
  line["libs"] = Json::object();
  line["libs"]["c10d"] = {{"ver", version()}};
  for (const BackendInfo& info : list_backends())
    if (info.available && info.name != "native") line["libs"][info.name] = {{"ver", info.version}};
  for (const auto& [name, text] : about) line["libs"][name]["about"] = text;
  line["vars"] = Json::object();
  for (const auto& [name, value] : relevant_variables()) line["vars"][name] = value;
  return line;
}

}  // namespace c10d::bench
