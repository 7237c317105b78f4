// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/schema.h"
#include "tests/temporary_directory.h"

namespace c10d::bench {

using Json = nlohmann::ordered_json;

struct Ended {
  int code = -1;
  std::string out;
};

inline Ended run_line(const std::string& command) {
  const std::string line = "timeout 300 " + command + " </dev/null";
  Ended ended;
  std::FILE* pipe = popen(line.c_str(), "r");
  std::array<char, 4096> chunk;
  while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe))
    ended.out.append(chunk.data(), got);
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

inline Ended run(const std::string& arguments, const char* streams = "2>&1") {
  return run_line(C10D_BENCH " " + arguments + " " + streams);
}

// With ranks that finalise MPI, which leaves memory behind.
inline Ended run_with_mpi(const std::string& arguments) {
  return run_line("env ASAN_OPTIONS=detect_leaks=0 " C10D_BENCH " " + arguments + " 2>&1");
}

inline std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) lines.push_back(Json::parse(text));
  return lines;
}

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline pid_t itself(pid_t child) { return child; }

// A rank that this c10d-bench has started.
inline pid_t a_rank_of(pid_t child) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || text_of(entry.path() / "cmdline").find("--worker-launch") == std::string::npos)
      continue;
    std::istringstream stat(text_of(entry.path() / "stat"));
    std::string number, name, state;
    pid_t parent = 0;
    if (stat >> number >> name >> state >> parent && parent == child) return pid;
  }
  ADD_FAILURE() << "no rank of " << child;
  return child;
}

// Starts a program and sends `signal` to `whom` once the JSON file holds `text`; the test's own
// time limit bounds the wait.
inline Ended interrupted(std::vector<std::string> arguments, const std::string& json, int signal,
                         const std::string& text, pid_t (*whom)(pid_t) = itself) {
  arguments.insert(arguments.end(), {"--json", json});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  Ended ended;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ended;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    ::signal(signal, SIG_DFL);  // who runs tests in the background ignores some
    execv(argv.front(), argv.data());
    _exit(127);
  }
  close(ends[1]);
  int status = 0;
  pid_t reaped = 0;
  while (text_of(json).find(text) == std::string::npos && reaped == 0) {
    reaped = waitpid(child, &status, WNOHANG);
    usleep(20'000);
  }
  if (reaped == 0) kill(whom(child), signal);
  std::array<char, 4096> chunk;
  for (ssize_t got; (got = read(ends[0], chunk.data(), chunk.size())) > 0;)
    ended.out.append(chunk.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  if (reaped == 0) waitpid(child, &status, 0);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

}  // namespace c10d::bench
