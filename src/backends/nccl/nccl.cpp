// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/nccl.h"

#include "src/device/shared_library.h"

namespace c10d { inline namespace v0 { namespace nccl {

std::string version_text(int version) {
  if (version < 10000) {  // before 2.9 a version had a digit less
    return std::to_string(version / 1000) + "." + std::to_string(version / 100 % 10) + "." +
           std::to_string(version % 100);
  }
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Api open_api(const std::string& path) {
  Api api;
  api.path = path;
  const SharedLibrary library = open_library(path);
  if (!library.handle) {
    api.why = "no NCCL: " + library.why +
              ": install the package nvidia-nccl-cu13 of PyPI, and set C10D_NCCL_LIBRARY to "
              "its nvidia/nccl/lib/libnccl.so.2";
    return api;
  }
  const auto get_version =
      reinterpret_cast<decltype(api.get_version)>(library.find("ncclGetVersion"));
  if (!get_version) {
    api.why = path + " is no NCCL: it has no ncclGetVersion";
    return api;
  }
  if (const Result result = get_version(&api.version); result != kSuccess) {
    api.why = path + " cannot be used: ncclGetVersion says " + std::to_string(result);
    return api;
  }
  if (api.version < kOldestVersion) {
    api.why = path + " is NCCL " + version_text(api.version) + ": install 2.18 or newer";
    return api;
  }
  std::string missing;
#define C10D_RESOLVE(since, name, symbol, result, ...)                           \
  if (api.version >= since) {                                                    \
    api.name = reinterpret_cast<result (*)(__VA_ARGS__)>(library.find(#symbol)); \
    if (!api.name) missing += missing.empty() ? #symbol : ", " #symbol;          \
  }
  C10D_NCCL_FUNCTIONS(C10D_RESOLVE)
#undef C10D_RESOLVE
  if (!missing.empty()) {
    api.why = path + " says it is NCCL " + version_text(api.version) + ", but lacks " + missing;
  } else if (std::string file = file_of(reinterpret_cast<const void*>(api.get_version));
             !file.empty()) {
    api.path = std::move(file);
  }
  return api;
}

}}}  // namespace c10d::v0::nccl
