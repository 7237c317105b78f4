// SPDX-License-Identifier: BSD-3-Clause
#include "bench/text/command_line.h"

#include <cstddef>

namespace c10d::bench {

std::optional<std::string> take_out(std::vector<std::string>& arguments, const std::string& name) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < arguments.size();) {
    const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    if (arguments[i].starts_with(name + "=")) {
      value = arguments[i].substr(name.size() + 1);
      arguments.erase(at);
    } else if (arguments[i] == name && i + 1 < arguments.size()) {
      value = arguments[i + 1];
      arguments.erase(at, at + 2);
    } else {
      ++i;
    }
  }
  return value;
}

const std::vector<std::string>& output_names() {
  static const std::vector<std::string> names = {"--json", "--csv", "--md", "--report", "--svg"};
  return names;
}

}  // namespace c10d::bench
