// SPDX-License-Identifier: BSD-3-Clause
#include "src/device/driver.h"

#include "src/device/shared_library.h"

namespace c10d { inline namespace v0 { namespace driver {

Api open_api(const std::string& path) {
  Api api;
  api.path = path;
  const SharedLibrary library = open_library(path);
  if (!library.handle) {
    api.why = "no CUDA driver: " + library.why;
    return api;
  }
  std::string missing;
#define C10D_RESOLVE(name, symbol, ...)                                        \
  api.name = reinterpret_cast<Result (*)(__VA_ARGS__)>(library.find(#symbol)); \
  if (!api.name) missing += missing.empty() ? #symbol : ", " #symbol;
  C10D_DRIVER_FUNCTIONS(C10D_RESOLVE)
#undef C10D_RESOLVE
  if (!api.init) {
    api.why = path + " is no CUDA driver: it has no cuInit";
  } else if (!missing.empty()) {
    api.why =
        path + " is too old a CUDA driver, it lacks " + missing + ": install driver 525 or newer";
  } else if (std::string file = file_of(reinterpret_cast<const void*>(api.init)); !file.empty()) {
    api.path = std::move(file);
  }
  return api;
}

}}}  // namespace c10d::v0::driver
