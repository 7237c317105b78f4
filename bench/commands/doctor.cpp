// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/doctor.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/cpu_binding.h"
#include "bench/measure/machine.h"
#include "bench/report/banner.h"
#include "bench/text/format.h"
#include "c10d/capability.h"
#include "c10d/env.h"
#include "c10d/error.h"
#include "src/base/env_table.h"

namespace c10d::bench {
namespace {

std::string limit_text(int resource, bool in_bytes) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return in_bytes ? bytes_text(limit.rlim_cur) : std::to_string(limit.rlim_cur);
}

// Nanoseconds for one reading of the clock that times everything.
double clock_cost() {
  constexpr int kReadings = 100'000;
  const auto start = std::chrono::steady_clock::now();
  auto last = start;
  for (int i = 0; i < kReadings; ++i) last = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(last - start).count() / kReadings;
}

std::string clock_source() {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  file >> name;
  return name.empty() ? "unknown" : name;
}

std::string port_range() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 0;
  int high = 0;
  return file >> low >> high ? fmt::format("{}-{}", low, high) : "unknown";
}

// Per core, but for the last one, which cores share.
std::string cache_text() {
  std::string text;
  for (const auto& [name, what] :
       {std::pair("L1d", _SC_LEVEL1_DCACHE_SIZE), std::pair("L2", _SC_LEVEL2_CACHE_SIZE),
        std::pair("L3", _SC_LEVEL3_CACHE_SIZE)})
    if (const long bytes = sysconf(what); bytes > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                          bytes_text(static_cast<std::uint64_t>(bytes)));
  return text.empty() ? "unknown" : text;
}

// CPUs of each package: how `--bind set` would go through them.
std::string topology_text() {
  std::map<int, std::vector<int>> packages;
  for (const Cpu& cpu : usable_cpus()) packages[cpu.package].push_back(cpu.number);
  std::string text;
  for (auto& [package, cpus] : packages)
    text += fmt::format("{}package {}: CPUs {}", text.empty() ? "" : "; ", package,
                        cpus_text(std::move(cpus)));
  return text;
}

Json launch_json() {
  Json line;
  try {
    const LaunchInfo info = detect_launch();
    line = {{"launcher", info.launcher},
            {"rank", info.rank},
            {"size", info.size},
            {"evidence", info.evidence}};
  } catch (const InvalidArgument& error) {
    line["error"] = error.what();
  }
  return line;
}

Json facts() {
  Json all;
  all["machine"] = environment_json();
  all["topology"] = topology_text();
  all["caches"] = cache_text();
  all["ports"] = port_range();
  all["load"] = load_average();
  all["clock"] = {{"source", clock_source()}, {"ns_per_reading", clock_cost()}};
  all["limits"] = {{"open files", limit_text(RLIMIT_NOFILE, false)},
                   {"locked memory", limit_text(RLIMIT_MEMLOCK, true)},
                   {"processes", limit_text(RLIMIT_NPROC, false)},
                   {"core file", limit_text(RLIMIT_CORE, true)}};
  all["launch"] = launch_json();
  all["backends"] = Json::array();
  for (const BackendInfo& info : list_backends())
    all["backends"].push_back({{"name", info.name},
                               {"available", info.available},
                               {"version", info.version},
                               {"reason", info.reason},
                               {"path", info.path}});
  all["unknown variables"] = Json::object();
  for (const UnknownEnv& unknown : unknown_env())
    all["unknown variables"][unknown.name] = unknown.nearest;
  return all;
}

// What a reader of numbers from here should know.
std::vector<std::string> advice(const Json& all) {
  std::vector<std::string> notes;
  const Json& machine = all["machine"];
  const int cores = machine["cores"].get<int>();
  if (cores < 2)
    notes.emplace_back("one CPU: ranks wait for each other's turn on it; times say little");
  if (const auto work = other_work()) notes.push_back(*work + "; intervals will be wide");
  if (!machine["cgroup_cpus"].is_null() && machine["cgroup_cpus"].get<double>() < cores)
    notes.push_back(fmt::format("the control group grants {:.1f} CPUs of {}: ranks are throttled",
                                machine["cgroup_cpus"].get<double>(), cores));
  if (machine["virt"] != "none")
    notes.emplace_back("a virtual machine: compare ratios inside a run, not times between runs");
  if (all["clock"]["ns_per_reading"].get<double>() > 200)
    notes.emplace_back("reading the clock is slow: times of small messages hold some of it");
  for (const auto& [name, nearest] : all["unknown variables"].items())
    notes.push_back(fmt::format("{} is no variable of c10d{}", name,
                                nearest.get<std::string>().empty()
                                    ? ""
                                    : ": did you mean " + nearest.get<std::string>() + "?"));
  return notes;
}

}  // namespace

int print_doctor(bool as_json) {
  const Json all = facts();
  if (as_json) {
    fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  const auto line = [](const std::string& label, const std::string& value) {
    fmt::print("{:<16}{}\n", label, value);
  };
  line("machine", machine_text(all["machine"]));
  line("topology", all["topology"].get<std::string>());
  line("caches", all["caches"].get<std::string>());
  const Json& granted = all["machine"]["cgroup_cpus"];
  line("control group",
       granted.is_null() ? "no CPU limit" : fmt::format("{:.2f} CPUs", granted.get<double>()));
  line("load", fmt::format("{:.2f}", all["load"].get<double>()));
  line("clock", fmt::format("{}, {:.0f} ns per reading", all["clock"]["source"].get<std::string>(),
                            all["clock"]["ns_per_reading"].get<double>()));
  line("free ports", all["ports"].get<std::string>());
  for (const auto& [name, value] : all["limits"].items()) line(name, value.get<std::string>());
  const Json& launch = all["launch"];
  if (launch.contains("error")) {
    line("launcher", launch["error"].get<std::string>());
  } else {
    line("launcher", fmt::format("{}, rank {} of {}", launch["launcher"].get<std::string>(),
                                 launch["rank"].get<int>(), launch["size"].get<int>()));
    for (const Json& evidence : launch["evidence"]) line("", evidence.get<std::string>());
  }
  for (const Json& backend : all["backends"])
    line(backend["name"].get<std::string>(),
         backend["available"].get<bool>()
             ? backend["version"].get<std::string>()
             : "not available: " + backend["reason"].get<std::string>());
  for (const auto& [name, value] : all["machine"]["vars"].items())
    line(name, value.get<std::string>());
  for (const std::string& note : advice(all)) line("note", note);
  return 0;
}

}  // namespace c10d::bench
