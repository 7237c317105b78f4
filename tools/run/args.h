// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace c10d { inline namespace v0 {

// What ends the program before it starts anything.
struct EarlyExit {
  int code = 0;
  std::string text;  // on stdout when the code is 0, else on stderr
};

// Ends the program with "c10d-run: WHAT".
[[noreturn]] void usage_error(const std::string& what);

std::optional<int> to_int(std::string_view text);
std::vector<std::string> split(const std::string& text, char separator);
// As a shell takes it for one word.
std::string quoted(const std::string& word);

}}  // namespace c10d::v0
