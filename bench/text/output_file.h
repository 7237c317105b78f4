// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace c10d::bench {

// Both throw InvalidArgument that shows what the user typed: `option`, then the path.
void write_file(const char* option, const std::string& path, std::string_view text);
void make_folder(const char* option, const std::string& folder);

}  // namespace c10d::bench
