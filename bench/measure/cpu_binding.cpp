// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/cpu_binding.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <tuple>

namespace c10d::bench {
namespace {

int topology_of(int cpu, const char* what) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, what));
  int value = -1;
  return file >> value ? value : 0;
}

}  // namespace

std::vector<Cpu> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<Cpu> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set))
      cpus.push_back({cpu, topology_of(cpu, "physical_package_id"), topology_of(cpu, "core_id")});
  return cpus;
}

std::vector<int> cpus_of_rank(std::vector<Cpu> cpus, int rank, int ranks, Bind bind) {
  const auto n = static_cast<std::size_t>(ranks);
  const auto r = static_cast<std::size_t>(rank);
  if (cpus.empty() || bind == Bind::none) return {};
  if (bind != Bind::core && cpus.size() < 2 * n) return {};
  std::sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.package, a.core, a.number) < std::tie(b.package, b.core, b.number);
  });
  if (cpus.size() < n) return {cpus[r % cpus.size()].number};
  const std::size_t from = r * cpus.size() / n;
  const std::size_t to = bind == Bind::core ? from + 1 : (r + 1) * cpus.size() / n;
  std::vector<int> share;
  for (std::size_t i = from; i < to; ++i) share.push_back(cpus[i].number);
  return share;
}

std::string cpus_text(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace c10d::bench
