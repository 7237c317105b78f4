// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/deed.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace c10d::chaos {
namespace {

// Who writes there from now on is killed by SIGPIPE. The descriptor stays: a closed one would be
// given to the next file that is opened.
void lose_reader_of_stdout() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  dup2(ends[1], STDOUT_FILENO);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace

void Deed::begin(int step, const ProcessGroup* group) {
  if (step != plan_.at || plan_.deviation < Deviation::kill) return;
  if (plan_.delay.count() == 0) return act(group);
  thread_ = std::thread([this, group] {
    std::this_thread::sleep_for(plan_.delay);
    act(group);
  });
}

void Deed::finish() {
  if (thread_.joinable()) thread_.join();
}

void Deed::act(const ProcessGroup* group) {
  board_.deviated = steady_now();
  switch (plan_.deviation) {
    case Deviation::kill:
      kill(getpid(), SIGKILL);
      break;
    case Deviation::stop:
      kill(getpid(), SIGSTOP);
      break;
    case Deviation::exit0:
      _exit(0);
    case Deviation::exec:
      execlp("sleep", "sleep", "60", nullptr);
      break;
    case Deviation::leave:
      throw Leaving();
    case Deviation::abort:
      if (group != nullptr) group->abort("the program of this rank gave up");
      break;
    case Deviation::mute:
      lose_reader_of_stdout();
      break;
    default:
      break;
  }
}

}  // namespace c10d::chaos
