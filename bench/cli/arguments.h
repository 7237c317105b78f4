// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace c10d::bench {

// The arguments for CLI11: long options with dashes, and --replay replaced by the arguments of the
// run in its file. Throws InvalidArgument when one is not UTF-8 or the file cannot be read.
std::vector<std::string> arguments_of(int argc, const char* const* argv);

// Those of one set of processes of a run: without what is for all sets together.
std::vector<std::string> arguments_of_a_set(std::vector<std::string> arguments);

// Prints on stderr what CLI11 found wrong with the arguments, with the nearest name of a command or
// an option. Returns the exit code.
int report_parse_error(const CLI::App& app, const std::vector<std::string>& arguments,
                       const CLI::ParseError& error);

}  // namespace c10d::bench
