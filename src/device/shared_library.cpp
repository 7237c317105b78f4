// SPDX-License-Identifier: BSD-3-Clause
#include "src/device/shared_library.h"

#include <dlfcn.h>

namespace c10d { inline namespace v0 {

void* SharedLibrary::find(const char* name) const { return handle ? dlsym(handle, name) : nullptr; }

SharedLibrary open_library(const std::string& path) {
  SharedLibrary library;
  library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) {
    const char* why = dlerror();
    library.why = why ? why : "the loader gives no reason";
  }
  return library;
}

std::string file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname ? info.dli_fname : std::string();
}

}}  // namespace c10d::v0
