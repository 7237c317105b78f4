// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "c10d/env.h"
#include "c10d/error.h"
#include "src/base/members.h"
#include "src/launch/orphans.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr Duration kExecTimeout = std::chrono::seconds(60);

[[noreturn]] void throw_no_resources(std::string_view what, int error) {
  throw_failure({.code = Code::out_of_resources,
                 .message = fmt::format("{}: {}; raise the limit (ulimit -n, ulimit -u) or start "
                                        "fewer ranks",
                                        what, error_text(error))});
}

// A descriptor below 3 would be overwritten when a child sets up its standard streams.
Fd above_standard_streams(Fd fd) {
  if (fd.get() > STDERR_FILENO) return fd;
  return Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

// From here to exec or _exit only async-signal-safe calls: the child is a copy of a threaded
// process.
[[noreturn]] void guard(int registrations, int writers_end, const char* marker) noexcept {
  prctl(PR_SET_NAME, "c10d-guard");
  setsid();
  close(writers_end);  // else its own copy would keep the end of the job from it
  dup2(registrations, STDIN_FILENO);
  syscall(SYS_close_range, STDOUT_FILENO, ~0U, 0);  // nothing of the caller's may stay open in it
  std::array<pid_t, kMaxLocalRanks> groups;
  std::size_t count = 0;
  pid_t group = 0;
  while (read(STDIN_FILENO, &group, sizeof group) == static_cast<ssize_t>(sizeof group))
    if (group > 1 && count < groups.size()) groups[count++] = group;
  for (std::size_t i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
  kill_marked_processes(marker);
  _exit(0);
}

void set_default_handlers() noexcept {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    if (action.sa_handler == SIG_DFL) continue;
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
}

// What the child writes when it could not become the program.
struct SpawnError {
  enum Step : int { streams, directory, cpus, program } step = streams;
  int error = 0;
};

[[noreturn]] void become(const SpawnOptions& options, char* const* argv, char* const* environment,
                         const cpu_set_t& cpus, pid_t parent, int error_fd,
                         const sigset_t& mask) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  setpgid(0, 0);
  const pid_t self = getpid();
  SpawnError failed;
  if (write(options.registration_fd, &self, sizeof self) != sizeof self ||
      dup2(options.stdin_fd, STDIN_FILENO) < 0 || dup2(options.stdout_fd, STDOUT_FILENO) < 0 ||
      dup2(options.stderr_fd, STDERR_FILENO) < 0 || fcntl(STDIN_FILENO, F_SETFD, 0) < 0 ||
      (options.kept_fd >= 0 && fcntl(options.kept_fd, F_SETFD, 0) < 0)) {
    failed = {SpawnError::streams, errno};
  } else if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) {
    failed = {SpawnError::directory, errno};
  } else if (!options.cpus.empty() && sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
    failed = {SpawnError::cpus, errno};
  } else {
    setrlimit(RLIMIT_NOFILE, &options.descriptors);
    set_default_handlers();
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    execve(options.path.c_str(), argv, environment);
    failed = {SpawnError::program, errno};
  }
  static_cast<void>(!write(error_fd, &failed, sizeof failed));
  _exit(127);
}

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  return set;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Why the kernel does not run this file, in words that say what to do.
std::string exec_problem(const SpawnOptions& options, int error) {
  struct stat info {};
  const bool is_relative = !options.directory.empty() && !options.path.starts_with('/');
  const std::string path = is_relative ? options.directory + '/' + options.path : options.path;
  const bool exists = stat(path.c_str(), &info) == 0;
  if (error == EACCES && exists && S_ISDIR(info.st_mode)) return "it is a directory";
  if (error == EACCES && exists && (info.st_mode & 0111) == 0)
    return "it is not executable; chmod +x it, or give its interpreter before it";
  if (error == ENOENT && exists)
    return "it is there, but the interpreter that its first line (#!) or its ELF header names is "
           "not";
  if (error == ENOEXEC)
    return "it is neither a program for this machine nor a script with a first line such as "
           "#!/bin/sh";
  return error_text(error);
}

[[noreturn]] void throw_not_started(const SpawnOptions& options, const SpawnError& failed) {
  std::string text;
  switch (failed.step) {
    case SpawnError::streams:
      text = fmt::format("cannot start {}: {}", options.path, error_text(failed.error));
      break;
    case SpawnError::directory:
      text = fmt::format("cannot start {} in {}: {}", options.path, options.directory,
                         error_text(failed.error));
      break;
    case SpawnError::cpus:
      text = fmt::format("cannot bind {} to the CPUs {}: {}", options.path, ranges_of(options.cpus),
                         error_text(failed.error));
      break;
    case SpawnError::program:
      text = fmt::format("cannot start {}: {}", options.path, exec_problem(options, failed.error));
      break;
  }
  throw InvalidArgument(text);
}

void reap(pid_t pid) noexcept {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::pair<Fd, Fd> make_pipe(int flags) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | flags) != 0) throw_no_resources("cannot make a pipe", errno);
  Fd read_end(ends[0]), write_end(ends[1]);
  read_end = above_standard_streams(std::move(read_end));
  write_end = above_standard_streams(std::move(write_end));
  if (!read_end || !write_end) throw_no_resources("cannot make a pipe", errno);
  return {std::move(read_end), std::move(write_end)};
}

Guardian::Guardian(const std::string& marker) {
  std::pair<Fd, Fd> ends = make_pipe();
  Fd &read_end = ends.first, &write_end = ends.second;
  const SignalsBlocked blocked;
  pid_ = fork();
  if (pid_ < 0) throw_no_resources("cannot start the guardian process", errno);
  if (pid_ == 0) guard(read_end.get(), write_end.get(), marker.c_str());
  register_ = std::move(write_end);
}

Guardian::~Guardian() {
  kill(pid_, SIGKILL);
  reap(pid_);
}

std::string find_program(const std::string& program) {
  const auto is_program = [](const std::string& path) {
    struct stat info {};
    return access(path.c_str(), X_OK) == 0 && stat(path.c_str(), &info) == 0 &&
           S_ISREG(info.st_mode);
  };
  if (program.find('/') != std::string::npos) return program;
  const std::string path = env("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t colon = std::min(path.find(':', start), path.size());
    const std::string candidate = path.substr(start, colon - start) + '/' + program;
    if (candidate.size() > program.size() + 1 && is_program(candidate)) return candidate;
    start = colon + 1;
  }
  const bool is_here = !program.empty() && access(program.c_str(), F_OK) == 0;
  throw InvalidArgument(fmt::format("cannot start {}: there is no such program on PATH{}", program,
                                    is_here ? "; did you mean ./" + program + "?" : ""));
}

Child spawn(const SpawnOptions& options) {
  const std::vector<char*> argv = pointers(options.command);
  const std::vector<char*> environment = pointers(options.environment);
  const cpu_set_t cpus = set_of(options.cpus);
  std::pair<Fd, Fd> ends = make_pipe();
  Fd &read_end = ends.first, &write_end = ends.second;
  const pid_t parent = getpid();
  Child child;
  {
    const SignalsBlocked blocked;
    child.pid = fork();
    if (child.pid < 0) throw_no_resources("cannot start a process", errno);
    if (child.pid == 0) {
      become(options, argv.data(), environment.data(), cpus, parent, write_end.get(),
             blocked.before());
    }
  }
  write_end.reset();
  child.pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
  const int pidfd_error = errno;

  SpawnError error;
  const bool answered =
      wait_for(read_end.get(), POLLIN, std::chrono::steady_clock::now() + kExecTimeout);
  const bool failed =
      answered && read(read_end.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error);
  if (answered && !failed && child.pidfd) return child;
  kill(child.pid, SIGKILL);
  reap(child.pid);
  if (failed) throw_not_started(options, error);
  if (!answered) {
    throw_failure({.code = Code::timed_out,
                   .message = fmt::format("{} did not start within 60 s: is its file system "
                                          "reachable?",
                                          options.path)});
  }
  throw_no_resources("cannot watch a process (pidfd_open)", pidfd_error);
}

}}  // namespace c10d::v0
