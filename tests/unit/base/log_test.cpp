// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/log.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "src/net/socket.h"

namespace c10d { namespace {

// How a process ends that logs to `stderr_fd` after `prepare`.
template <class Prepare>
int status_of_a_log_to(int stderr_fd, Prepare&& prepare) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);  // should it hang
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    dup2(stderr_fd, STDERR_FILENO);
    prepare();
    log_line(LogLevel::warn, "nobody can read this");
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(Log, AStderrThatNobodyReadsEndsNothing) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Fd reader(ends[0]);
  const Fd writer(ends[1]);
  reader.reset();
  EXPECT_EQ(status_of_a_log_to(writer.get(), [] {}), 0);
}

TEST(Log, AStderrThatMayNotGrowEndsNothing) {
  char name[] = "/tmp/c10d-test-XXXXXX";
  const Fd file(mkstemp(name));
  ASSERT_TRUE(file);
  ::unlink(name);
  EXPECT_EQ(status_of_a_log_to(file.get(),
                               [] {
                                 const rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
                                 setrlimit(RLIMIT_FSIZE, &none);
                               }),
            0);
}

}}  // namespace c10d
