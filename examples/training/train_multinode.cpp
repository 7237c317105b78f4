// SPDX-License-Identifier: BSD-3-Clause
// As train_ddp, on several hosts: c10d-run is typed on each of them, and this prints what to type.
//   train_multinode --print-commands node1:4,node2:4 --epochs 3
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "c10d/env.h"
#include "c10d/init.h"
#include "examples/training/trainer/trainer.h"

namespace {

// Becomes c10d-run, which prints what to type on each host of options.print_commands. Returns only
// by throwing std::system_error.
[[noreturn]] void become_print_commands(const nn::Options& options) {
  constexpr const char* kOption = "--print-commands";
  // Called by its path, as a program of a build is, it finds c10d-run beside it; else on PATH.
  const std::filesystem::path self = options.command.front();
  const std::string launcher = (self.parent_path() / "c10d-run").string();
  std::vector<std::string> words = {launcher, kOption, "-H", options.print_commands, self.string()};
  for (std::size_t i = 1; i < options.command.size(); ++i) {
    const std::string& word = options.command[i];
    if (word == kOption)
      ++i;  // and its value
    else if (!word.starts_with(std::string(kOption) + "="))
      words.push_back(word);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw std::system_error(errno, std::generic_category(), "cannot start " + launcher);
}

}  // namespace

int main(int argc, char** argv) {
  const nn::Program program{"train_multinode",
                            "Trains a replica of the model on every rank of several hosts. "
                            "--print-commands shows how to start it.",
                            {"backend", "shards", "print-commands"}};
  return nn::run_program(program, argc, argv, [](const nn::Options& options) {
    if (!options.print_commands.empty()) become_print_commands(options);
    auto group = c10d::init_process_group({.backend = options.backend});
    nn::train(options, group, group.size(), nn::replicated);
  });
}
