// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

// The words of a command line.
namespace c10d::bench {

// Takes `name VALUE` and `name=VALUE` out of the arguments; the last value counts.
std::optional<std::string> take_out(std::vector<std::string>& arguments, const std::string& name);
// The options that name a file to write. A run that repeats another one leaves them out.
const std::vector<std::string>& output_names();

}  // namespace c10d::bench
