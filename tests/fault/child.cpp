// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <system_error>

#include "tests/fault/job.h"

namespace c10d::fault {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

}  // namespace

Child::Child(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int in[2], out[2];
  // A socket to it, since writing into a pipe that nobody reads would be a signal to us.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0 || pipe2(out, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "no channel to a child");
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      heard_(std::move(other.heard_)) {}

Child::~Child() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (to_ >= 0) close(to_);
  if (from_ >= 0) close(from_);
}

void Child::tell(const std::string& line) {
  const std::string whole = line + "\n";
  EXPECT_EQ(send(to_, whole.data(), whole.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(whole.size()));
}

std::string Child::hear(milliseconds patience) {
  const auto deadline = steady_clock::now() + patience;
  while (true) {
    if (const std::size_t end = heard_.find('\n'); end != heard_.npos) {
      const std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()).count();
    pollfd ready{.fd = from_, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return "(no answer)";
    char buffer[4096];
    const ssize_t length = read(from_, buffer, sizeof buffer);
    if (length <= 0) return "(it ended)";
    heard_.append(buffer, static_cast<std::size_t>(length));
  }
}

std::string Child::hear_of(const std::string& start) {
  std::string line;
  do {
    line = hear();
  } while (!line.starts_with(start) && !line.starts_with("("));
  return line;
}

void Child::await_stop() const {
  siginfo_t info;
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED), 0);
}

int Child::end() {
  close(std::exchange(to_, -1));
  while (!hear().starts_with("(")) {
  }
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  EXPECT_GE(pidfd, 0);
  pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
  if (poll(&ended, 1, static_cast<int>(milliseconds(kPatience).count())) <= 0) signal(SIGKILL);
  close(pidfd);
  int status = 0;
  EXPECT_GT(waitpid(std::exchange(pid_, -1), &status, 0), 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Heard parse_error(const std::string& line) {
  Heard heard;
  std::istringstream words(line);
  std::string error;
  words >> error >> heard.code >> heard.rank >> heard.pid;
  std::getline(words, heard.what);
  if (error != "error") heard = {.code = line};
  return heard;
}

}  // namespace c10d::fault
