// SPDX-License-Identifier: BSD-3-Clause
#include "tests/launch/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::seconds kTimeout{60};

// Where the test reads what the child writes, or the child what the test writes.
struct Pipe {
  Fd reader, writer;
};

Pipe open_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
  return {Fd(ends[0]), Fd(ends[1])};
}

Pipe open_terminal() {
  int master = -1, slave = -1;
  if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) std::abort();
  fcntl(master, F_SETFD, FD_CLOEXEC);
  fcntl(slave, F_SETFD, FD_CLOEXEC);
  return {Fd(master), Fd(slave)};
}

[[noreturn]] void run_child(const Process::Options& options, int in, int out, int err) {
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  // Whoever started the test may have left signals ignored, as nohup does.
  for (const int handled : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD, SIGPIPE})
    signal(handled, SIG_DFL);
  if (options.ignored_signal != 0) signal(options.ignored_signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<char*> argv;
  for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

// True while there may be more.
bool read_into(Fd& fd, std::string& text) {
  std::array<char, 65536> bytes;
  const ssize_t n = read(fd.get(), bytes.data(), bytes.size());
  if (n > 0) {
    text.append(bytes.data(), static_cast<std::size_t>(n));
    return true;
  }
  fd.reset();  // end of file; a terminal says EIO
  return false;
}

std::string command_line(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::ostringstream text;
  text << file.rdbuf();
  std::string line = text.str();
  std::replace(line.begin(), line.end(), '\0', ' ');
  return line;
}

std::vector<pid_t> children() {
  const std::string self = std::to_string(getpid());
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  std::vector<pid_t> pids;
  for (pid_t pid; file >> pid;) pids.push_back(pid);
  return pids;
}

}  // namespace

Process::Process(const Options& options) : deadline_(steady_clock::now() + kTimeout) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Pipe in = open_pipe();
  Pipe out = options.terminal ? open_terminal() : open_pipe();
  Pipe err;
  if (!options.terminal) err = open_pipe();
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0)
    run_child(options, in.reader.get(), out.writer.get(),
              err.writer ? err.writer.get() : out.writer.get());
  out_fd_ = std::move(out.reader);
  err_fd_ = std::move(err.reader);
  if (write(in.writer.get(), options.input.data(), options.input.size()) < 0) std::abort();
  if (options.hold_input) in_fd_ = std::move(in.writer);
}

Process::~Process() {
  if (reaped_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Process::read_more() {
  std::array<pollfd, 2> entries{pollfd{out_fd_.get(), POLLIN, 0}, pollfd{err_fd_.get(), POLLIN, 0}};
  if (poll(entries.data(), entries.size(), poll_timeout(deadline_)) <= 0) return false;
  if (entries[0].revents != 0) read_into(out_fd_, out_);
  if (entries[1].revents != 0) read_into(err_fd_, err_);
  return true;
}

bool Process::wait_for_lines(std::size_t count) {
  while (static_cast<std::size_t>(std::count(out_.begin(), out_.end(), '\n')) < count)
    if (!out_fd_ || !read_more()) return false;
  return true;
}

bool Process::wait_for_error(const std::string& text) {
  while (err_.find(text) == std::string::npos)
    if (!err_fd_ || !read_more()) return false;
  return true;
}

int Process::wait() {
  while ((out_fd_ || err_fd_) && read_more()) {
  }
  if (out_fd_ || err_fd_) return -1;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return -1;
  reaped_ = true;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Ended run(const Process::Options& options) {
  Process process(options);
  const int code = process.wait();
  return {code, process.out(), process.err()};
}

std::vector<std::string> c10d_run(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {C10D_RUN};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

Ended run_ranks(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& environment) {
  return run({.command = c10d_run(arguments), .environment = environment});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> sorted_lines_of(const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string processes_left() {
  sigset_t child, before;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &child, &before);
  const auto deadline = steady_clock::now() + std::chrono::seconds(20);
  for (;;) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid > 0) continue;
    if (pid < 0 || steady_clock::now() >= deadline) break;
    const timespec wait{0, 100'000'000};  // SIGCHLD ends it sooner
    sigtimedwait(&child, nullptr, &wait);
  }
  std::string left;
  for (const pid_t pid : children()) {
    left += command_line(pid) + "\n";
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return left;
}

}}  // namespace c10d::v0
