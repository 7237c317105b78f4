// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/say.h"

#include <fcntl.h>
#include <unistd.h>

#include <system_error>

#include "c10d/error.h"

namespace c10d::fault {
namespace {

int g_output = STDOUT_FILENO;

}  // namespace

void redirect(const std::string& path, bool log_too) {
  g_output = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (g_output < 0) throw std::system_error(errno, std::generic_category(), path);
  if (log_too) dup2(g_output, STDERR_FILENO);
}

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (write(g_output, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size()))
    _exit(3);  // nobody listens any more
}

void say_error(const std::exception& error) {
  std::string facts = "none -1 0";
  if (const auto* known = dynamic_cast<const DistError*>(&error)) {
    const Failure& failure = known->failure();
    facts = std::string(to_string(failure.code)) + " " + std::to_string(failure.rank) + " " +
            std::to_string(failure.pid);
  }
  say("error " + facts + " " + error.what());
}

}  // namespace c10d::fault
