// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "c10d/env.h"
#include "c10d/init.h"
#include "c10d/launch.h"

namespace c10d { inline namespace v0 {
namespace {

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> command;
  for (std::string word; std::getline(file, word, '\0');) command.push_back(std::move(word));
  if (command.empty()) command.emplace_back();
  command.front() = "/proc/self/exe";
  return command;
}

int run_rank(const std::function<void(const ProcessGroup&)>& f) {
  char program[] = "spawn";
  char* name[] = {program, nullptr};
  return run_main(1, name, [&] { f(init_process_group()); });
}

}  // namespace

int spawn(int ranks, const std::function<void(const ProcessGroup&)>& f, LaunchOptions options) {
  static std::atomic<int> calls{0};
  const std::string call = std::to_string(++calls);
  if (const auto wanted = env("C10D_SPAWN")) {
    if (*wanted != call) return 0;  // an earlier call than the one that started this process
    std::exit(run_rank(f));
  }
  if (detect_launch().launcher != "none") return run_rank(f);
  options.ranks = ranks;
  options.command = own_command();
  options.environment["C10D_SPAWN"] = call;
  return launch(options).exit_code;
}

}}  // namespace c10d::v0
