// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "examples/training/trainer/trainer.h"

namespace nn {

void become_print_commands(const Options& options) {
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

}  // namespace nn
