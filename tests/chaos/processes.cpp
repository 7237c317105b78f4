// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace c10d::chaos {
namespace {

struct Stat {
  pid_t parent = 0;
  char state = 0;  // 0: there is no such process
};

Stat stat_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  if (!std::getline(file, line) || line.rfind(") ") == line.npos) return {};
  std::istringstream rest(line.substr(line.rfind(") ") + 2));
  Stat stat;
  rest >> stat.state >> stat.parent;
  return stat;
}

}  // namespace

void adopt_orphans() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
}

std::vector<pid_t> descendants() {
  std::map<pid_t, Stat> all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == name.npos)
      all[static_cast<pid_t>(std::stoi(name))] = stat_of(name);
  }
  std::vector<pid_t> below;
  for (const auto& [pid, stat] : all) {
    if (stat.state == 0) continue;
    pid_t above = stat.parent;
    for (int depth = 0; above > 1 && above != getpid() && depth < 20; ++depth)
      above = all.contains(above) ? all[above].parent : 0;
    if (above == getpid()) below.push_back(pid);
  }
  return below;
}

bool is_gone(pid_t pid) {
  const char state = stat_of(std::to_string(pid)).state;
  return state == 0 || state == 'Z';
}

void reap(std::map<pid_t, std::string>& ended) {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    ended[pid] = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                     : "exit " + std::to_string(WEXITSTATUS(status));
}

void end_descendants() {
  // What is killed may have started another one meanwhile; and while a thread becomes another
  // program, its process looks like a zombie. All of them end as our children.
  while (true) {
    for (const pid_t pid : descendants()) kill(pid, SIGKILL);
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended < 0) return;
    if (ended == 0) usleep(500);
  }
}

std::string command_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string line((std::istreambuf_iterator<char>(file)), {});
  std::ranges::replace(line, '\0', ' ');
  return line;
}

}  // namespace c10d::chaos
