// SPDX-License-Identifier: BSD-3-Clause
// module.h in a static build: a module links libc10d.so, a second copy of what the program has.
#include "src/backends/module.h"

namespace c10d { inline namespace v0 {

std::vector<std::string> module_folders() { return {}; }

OpenedModule open_module(std::string_view) {
  return {.reason =
              "this is a static build of c10d, which has native only; build it with "
              "BUILD_SHARED_LIBS=ON for gloo, mpi and nccl"};
}

std::vector<std::string> module_stems() { return {}; }

}}  // namespace c10d::v0
