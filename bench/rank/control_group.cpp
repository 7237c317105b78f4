// SPDX-License-Identifier: BSD-3-Clause
#include "bench/rank/control_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <utility>

#include "bench/measure/cpu_binding.h"
#include "bench/measure/machine.h"
#include "bench/meeting/shared_page.h"
#include "bench/meeting/store_meeting.h"
#include "c10d/capability.h"
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

ProcessGroup make_group(const std::string& token, double timeout) {
  InitOptions init;
  init.backend = "native";
  init.name = "bench";
  init.token = token;
  init.timeout = duration_of(timeout);
  if (!env("C10D_TIMEOUT")) init.connect_timeout = std::chrono::seconds(60);
  return init_process_group(std::move(init));
}

// Each rank tells the first one on its host: two hosts may have the same name.
std::vector<ControlGroup::Host> hosts_of(const ProcessGroup& group) {
  const std::vector<Member>& members = group.members();
  const std::array own{std::ranges::find_if(members, &Member::same_host)->rank};
  std::vector<int> firsts(members.size());
  group.all_gather(firsts, own);
  std::map<int, ControlGroup::Host> by_first;
  for (const Member& member : members) {
    ControlGroup::Host& host = by_first[firsts[static_cast<std::size_t>(member.rank)]];
    if (host.ranks.empty()) host.name = member.host;
    host.ranks.push_back(member.rank);
  }
  std::vector<ControlGroup::Host> hosts;
  for (auto& [first, host] : by_first) hosts.push_back(std::move(host));
  return hosts;
}

std::unique_ptr<Meeting> make_meeting(ProcessGroup& group, int first_here, bool one_host,
                                      Duration timeout) {
  if (one_host)
    return std::make_unique<SharedPage>(group.store(), group.rank(), group.size(), timeout);
  return std::make_unique<StoreMeeting>(group.store(), first_here, group.rank(), group.size(),
                                        timeout);
}

}  // namespace

ControlGroup::ControlGroup(const std::string& token_path, double timeout)
    : token_(read_token(token_path)),
      group_(make_group(token_, timeout)),
      hosts_(hosts_of(group_)),
      // Longer than an op's own deadline, so that a stuck backend is named before the barrier gives
      // up.
      meeting_(make_meeting(group_, own_host().ranks.front(), hosts_.size() == 1,
                            duration_of(timeout * 2 + 10))) {}

const ControlGroup::Host& ControlGroup::own_host() const noexcept {
  return *std::ranges::find_if(hosts_, [&](const Host& host) {
    return std::ranges::find(host.ranks, group_.rank()) != host.ranks.end();
  });
}

int ControlGroup::local_rank() const noexcept {
  const std::vector<int>& ranks = own_host().ranks;
  return static_cast<int>(std::ranges::find(ranks, group_.rank()) - ranks.begin());
}

ControlGroup::Binding ControlGroup::bind(Bind bind) {
  const std::vector<Cpu> cpus = usable_cpus();
  std::vector<int> all;
  for (const Cpu& cpu : cpus) all.push_back(cpu.number);
  std::string text = cpus_text(all);
  const std::vector<std::string> before = gather("cpus_before", text);
  const auto cpus_before = [&](int of) { return before[static_cast<std::size_t>(of)]; };
  Binding binding{all.size(), true};
  for (const Host& host : hosts_)
    for (const int other : host.ranks)
      binding.alike = binding.alike && cpus_before(other) == cpus_before(host.ranks.front());
  const std::vector<int> share =
      binding.alike
          ? cpus_of_rank(cpus, local_rank(), static_cast<int>(own_host().ranks.size()), bind)
          : std::vector<int>();
  binding.bound = !share.empty();
  if (binding.bound && meeting_->bind(share)) text = cpus_text(share);
  cpus_ = gather("cpus", text);
  return binding;
}

std::vector<std::string> ControlGroup::gather(const std::string& name, const std::string& text) {
  std::vector<std::string> keys;
  for (int of = 0; of < size(); ++of) keys.push_back(fmt::format("{}/{}", name, of));
  store().set(keys[static_cast<std::size_t>(rank())], text);
  return store().multi_get(keys);
}

}  // namespace c10d::bench
