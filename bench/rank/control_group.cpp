// SPDX-License-Identifier: BSD-3-Clause
#include "bench/rank/control_group.h"

#include <fmt/format.h>

#include <fstream>

#include "bench/measure/cpu_binding.h"
#include "bench/measure/oracle.h"
#include "c10d/env.h"
#include "c10d/init.h"

namespace c10d::bench {
namespace {

// The job's secret, by its path under the launcher's /proc/PID/fd.
std::string read_token(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  std::string token(std::istreambuf_iterator<char>(file), {});
  if (token.empty())
    throw InvalidArgument("--worker-token: nothing there; it is for ranks that c10d-bench starts");
  return token;
}

ProcessGroup make_native_group(const std::string& token, double timeout) {
  InitOptions init;
  init.backend = "native";
  init.name = "bench";
  init.token = token;
  init.timeout = duration_of(timeout);
  if (!env("C10D_TIMEOUT")) init.connect_timeout = std::chrono::seconds(60);
  ProcessGroup group = init_process_group(std::move(init));
  for (const Member& member : group.members()) {
    if (member.same_host) continue;
    throw_failure({Code::unsupported,
                   fmt::format("rank {} runs on {}: c10d-bench measures the ranks of one host",
                               member.rank, member.host),
                   member.rank, member.host});
  }
  return group;
}

std::string key_of_cpus(int rank) { return fmt::format("cpus/{}", rank); }

}  // namespace

ControlGroup::ControlGroup(const std::string& token_path, double timeout)
    : token_(read_token(token_path)),
      group_(make_native_group(token_, timeout)),
      // Longer than an op's own deadline, so that a stuck backend is named before the barrier gives
      // up.
      page_(group_.store(), group_.rank(), group_.size(), duration_of(timeout * 2 + 10)) {}

ControlGroup::Binding ControlGroup::bind(Bind bind) {
  const std::vector<Cpu> cpus = usable_cpus();
  std::vector<int> all;
  for (const Cpu& cpu : cpus) all.push_back(cpu.number);
  std::string text = cpus_text(all);
  const auto hash = static_cast<std::int64_t>(hash_bytes(text.data(), text.size()) >> 1);
  Binding binding{all.size(), !any(page_.from_root(hash) != hash)};
  const std::vector<int> share =
      binding.alike ? cpus_of_rank(cpus, rank(), size(), bind) : std::vector<int>();
  binding.bound = !share.empty();
  if (binding.bound && page_.bind(share)) text = cpus_text(share);
  store().set(key_of_cpus(rank()), text);
  return binding;
}

std::vector<std::string> ControlGroup::cpus() {
  std::vector<std::string> texts;
  for (int rank = 0; rank < size(); ++rank) texts.push_back(store().get(key_of_cpus(rank)));
  return texts;
}

std::vector<std::string> ControlGroup::gather(const std::string& name, const std::string& text) {
  const auto key = [&](int of) { return fmt::format("{}/{}", name, of); };
  store().set(key(rank()), text);
  std::vector<std::string> texts;
  for (int other = 0; other < size(); ++other) texts.push_back(store().get(key(other)));
  return texts;
}

}  // namespace c10d::bench
