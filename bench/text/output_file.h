// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace c10d::bench {

// A file that is written as things come; null: there is none.
using OutputFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// All throw InvalidArgument that shows what the user typed: `option`, then the path.
void write_file(const char* option, const std::string& path, std::string_view text);
// Of an empty path none, of "-" stdout.
OutputFile open_output(const char* option, const std::string& path);
void make_folder(const char* option, const std::string& folder);

}  // namespace c10d::bench
