// SPDX-License-Identifier: BSD-3-Clause
#include "bench/text/output_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "c10d/error.h"

namespace c10d::bench {
namespace {

int keep_open(std::FILE*) { return 0; }

}  // namespace

void write_file(const char* option, const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush())
    throw InvalidArgument(
        fmt::format("{} {}: cannot be written: {}", option, path, std::strerror(errno)));
}

OutputFile open_output(const char* option, const std::string& path) {
  if (path.empty()) return {nullptr, keep_open};
  if (path == "-") return {stdout, keep_open};
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    throw InvalidArgument(fmt::format("{} {}: {}", option, path, std::strerror(errno)));
  return {file, std::fclose};
}

void make_folder(const char* option, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder))
    throw InvalidArgument(fmt::format("{} {}: no folder: {}", option, folder, error.message()));
}

}  // namespace c10d::bench
