// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/members.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <numeric>
#include <utility>

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kNamedInFull = 8;

}  // namespace

std::string ranges_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < ranks.size(); first = ++last) {
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[first]);
    if (last > first) text += fmt::format("{}{}", last > first + 1 ? "-" : ", ", ranks[last]);
  }
  return text;
}

std::string name_of(const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", member.rank, member.host, member.pid);
}

std::string names_of(const std::vector<Member>& members, const std::vector<int>& ranks) {
  const auto member_of = [&](int rank) -> const Member& {
    return members[static_cast<std::size_t>(rank)];
  };
  std::string text;
  const auto add = [&text](const std::string& name) { text += (text.empty() ? "" : ", ") + name; };
  if (ranks.size() <= kNamedInFull) {
    for (const int rank : ranks) add(name_of(member_of(rank)));
    return text;
  }
  std::map<std::string, std::vector<int>> by_host;
  for (const int rank : ranks) by_host[member_of(rank).host].push_back(rank);
  for (const auto& entry : by_host)
    add(fmt::format("ranks {} (host {})", ranges_of(entry.second), entry.first));
  return text;
}

std::string process_stat(std::int64_t pid, int number) {
  std::string line;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), line);
  std::size_t at = line.rfind(')');  // of field 2, the name, which may hold anything
  for (int field = 2; field < number && at != line.npos; ++field) at = line.find(' ', at + 1);
  return at == line.npos ? "" : line.substr(at + 1, line.find(' ', at + 1) - at - 1);
}

bool has_ended(const Member& member) noexcept {
  const auto pid = static_cast<pid_t>(member.pid);
  if (!member.same_host || pid == getpid()) return false;
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd entry{fd, POLLIN, 0};
  const bool ended = ::poll(&entry, 1, 0) == 1;
  // ThreadSanitizer does not see pidfd_open, and would take close() for that of an older descriptor
  // with this number, which libuv closed by a system call.
  ::syscall(SYS_close, fd);
  return ended;
}

namespace {

bool is_stopped(std::int64_t pid) {
  const std::string state = process_stat(pid, 3);
  return state == "T" || state == "t";
}

}  // namespace

std::vector<int> not_running(const std::vector<Member>& members) {
  std::vector<int> ranks;
  for (const Member& member : members)
    if (has_ended(member) || (member.same_host && is_stopped(member.pid)))
      ranks.push_back(member.rank);
  return ranks;
}

Failure name_not_running(Failure failure, const std::vector<Member>& members,
                         const std::vector<int>& among) {
  if (failure.code != Code::timed_out) return failure;
  std::vector<Member> some;
  for (const int rank : among) some.push_back(members[static_cast<std::size_t>(rank)]);
  const std::vector<int> idle = not_running(some);
  if (idle.empty()) return failure;
  failure.message += "; " + about_not_running(members, idle);
  if (std::ranges::find(idle, failure.rank) == idle.end()) failure.rank = idle.front();
  const Member& named = members[static_cast<std::size_t>(failure.rank)];
  return caused_by(named, std::move(failure));
}

Failure name_not_running(Failure failure, const std::vector<Member>& members) {
  std::vector<int> all(members.size());
  std::iota(all.begin(), all.end(), 0);
  return name_not_running(std::move(failure), members, all);
}

std::string about_not_running(const std::vector<Member>& members, const std::vector<int>& ranks) {
  return ranks.empty() ? "no rank of this host has ended or is stopped"
                       : "ended or stopped: " + names_of(members, ranks);
}

}}  // namespace c10d::v0
