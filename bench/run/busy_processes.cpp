// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/busy_processes.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "c10d/error.h"

namespace c10d::bench {
namespace {

// After fork(), so it calls nothing that may take a lock. It keeps no pipe of the run open.
[[noreturn]] void compute(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  syscall(SYS_close_range, 0, ~0U, 0);
  for (volatile unsigned turns = 0;;) turns = turns + 1;
}

}  // namespace

BusyProcesses::BusyProcesses(int count) {
  const pid_t parent = getpid();
  for (int i = 0; i < count; ++i) {
    const pid_t process = fork();
    if (process == 0) compute(parent);
    if (process < 0) {
      const int error = errno;
      end();
      throw_failure({.code = Code::out_of_resources,
                     .message = fmt::format("--busy {}: cannot start process {}: {}", count, i + 1,
                                            std::strerror(error))});
    }
    processes_.push_back(process);
  }
}

BusyProcesses::~BusyProcesses() { end(); }

void BusyProcesses::end() noexcept {
  for (const pid_t process : processes_) kill(process, SIGKILL);
  for (const pid_t process : processes_) waitpid(process, nullptr, 0);
  processes_.clear();
}

}  // namespace c10d::bench
