// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "tools/run/option_table.h"

namespace c10d { inline namespace v0 {

// An option as it was typed, its name with dashes for underscores.
struct TypedOption {
  std::string name;  // the last of its names in the table: "--nproc-per-node" for "-n"
  std::vector<std::string> words;
};

struct CommandLine {
  RawOptions raw;
  std::vector<TypedOption> typed;    // the environment's are not among them
  std::vector<std::string> command;  // the program and its arguments; may be empty
};

// Reads argv up to the program, after PET_*. Throws EarlyExit for help, and for what is no option
// or no value of it.
CommandLine read_command_line(int argc, char** argv);

}}  // namespace c10d::v0
