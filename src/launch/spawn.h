// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "c10d/export.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {

inline constexpr int kMaxLocalRanks = 4096;

// {read end, write end}, close-on-exec, never 0, 1 or 2; `flags`, such as O_NONBLOCK, hold for
// both. Throws DistBackendError (out_of_resources).
C10D_API std::pair<Fd, Fd> make_pipe(int flags = 0);

// A process that sleeps until this one ends, however it ends, then kills every process group of the
// job and every process that carries the job's marker. Destroyed by its owner, it kills nothing.
class C10D_API Guardian {
 public:
  explicit Guardian(const std::string& marker);
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Where a new process writes its pid, which is its group's, before it runs anything else.
  int registration_fd() const noexcept { return register_.get(); }

 private:
  Fd register_;
  pid_t pid_ = -1;
};

struct SpawnOptions {
  std::string path;
  std::string directory;  // in which it starts; empty: that of this process
  std::vector<std::string> command, environment;
  std::vector<int> cpus;  // that it may run on; empty: those of this process
  int stdin_fd = -1, stdout_fd = -1, stderr_fd = -1;
  int kept_fd = -1;  // stays open in the program, under the same number; -1: none
  int registration_fd = -1;
  rlimit descriptors{};  // that the program may open
};

// `program` itself when it has a slash, else the first executable of that name on PATH. Throws
// InvalidArgument.
C10D_API std::string find_program(const std::string& program);

struct Child {
  pid_t pid = -1;
  Fd pidfd;  // readable once the process has ended
};

// Starts a program as leader of a new process group, killed when the calling thread ends. It has
// the default action for every signal that this process handles. Throws InvalidArgument when the
// kernel refuses to run it, DistBackendError (out_of_resources).
C10D_API Child spawn(const SpawnOptions& options);

}}  // namespace c10d::v0
