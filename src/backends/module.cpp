// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "c10d/env.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kFilePrefix = "libc10d_";
constexpr std::string_view kFileSuffix = ".so";
constexpr const char* kSymbol = "c10d_backend_module";

// The folder of the file that this code was loaded from.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || !info.dli_fname) return {};
  std::error_code error;
  const fs::path path = fs::canonical(info.dli_fname, error);
  return error ? std::string() : path.parent_path().string();
}

// The loader maps what the headers promise: to touch a page behind the end of the file would end
// the process.
bool is_truncated(const std::string& path) {
  ElfW(Ehdr) header{};
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;  // dlerror() knows
  std::error_code error;
  return fs::file_size(path, error) <
         header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
}

OpenedModule open_file(const std::string& path) {
  if (is_truncated(path)) return {nullptr, path, path + " is truncated: install it again"};
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return {nullptr, path, dlerror()};
  using Entry = const BackendModule* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, kSymbol));
  const BackendModule* module = entry ? entry() : nullptr;
  if (!module) {
    dlclose(handle);
    return {nullptr, path,
            fmt::format("{} is no c10d backend: it lacks the function {}", path, kSymbol)};
  }
  if (module->abi_version != kBackendAbiVersion || module->struct_size < sizeof(BackendModule)) {
    std::string reason = fmt::format(
        "{} has module ABI {} ({} bytes), this library wants {} ({} bytes): build both from one "
        "source",
        path, module->abi_version, module->struct_size, kBackendAbiVersion, sizeof(BackendModule));
    dlclose(handle);
    return {nullptr, path, std::move(reason)};
  }
  return {module, path, {}};
}

// By stem; never closed.
struct KnownModules {
  Mutex mutex;
  std::map<std::string, OpenedModule, std::less<>> opened C10D_GUARDED_BY(mutex);
};

}  // namespace

std::vector<std::string> module_folders() {
  std::vector<std::string> folders;
  const std::string path = env("C10D_BACKEND_PATH").value_or("");
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) folders.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  if (const std::string own = own_folder(); !own.empty()) folders.push_back(own + "/c10d/backends");
  return folders;
}

OpenedModule open_module(std::string_view stem) {
  static auto& known = *new KnownModules();
  MutexLock lock(known.mutex);
  if (const auto found = known.opened.find(stem); found != known.opened.end()) return found->second;
  for (const std::string& folder : module_folders()) {
    const std::string path = fmt::format("{}/{}{}{}", folder, kFilePrefix, stem, kFileSuffix);
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    OpenedModule result = open_file(path);
    if (result.module) known.opened.emplace(stem, result);
    return result;
  }
  return {};
}

std::vector<std::string> module_stems() {
  std::vector<std::string> stems;
  for (const std::string& folder : module_folders()) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.size() > kFilePrefix.size() + kFileSuffix.size() && name.starts_with(kFilePrefix) &&
          name.ends_with(kFileSuffix))
        stems.push_back(
            name.substr(kFilePrefix.size(), name.size() - kFilePrefix.size() - kFileSuffix.size()));
    }
  }
  std::sort(stems.begin(), stems.end());
  stems.erase(std::unique(stems.begin(), stems.end()), stems.end());
  return stems;
}

}}  // namespace c10d::v0
