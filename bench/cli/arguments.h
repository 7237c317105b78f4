// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace c10d::bench {

// The arguments as CLI11 shall see them: long options with dashes, and --replay replaced by the
// words of the run in its file. Throws InvalidArgument on what is not UTF-8, or no such file.
std::vector<std::string> words_of(int argc, const char* const* argv);

// Says what CLI11 found wrong with the words, under this program's name and with what was probably
// meant. Returns the exit code.
int complain(const CLI::App& app, const std::vector<std::string>& words,
             const CLI::ParseError& error);

}  // namespace c10d::bench
