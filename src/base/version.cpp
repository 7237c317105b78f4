// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/capability.h"

namespace c10d { inline namespace v0 {

std::string version() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  return std::string(kVersion) + " (" + compiler + ", " C10D_BUILD_TYPE ")";
}

}}  // namespace c10d::v0
