// SPDX-License-Identifier: BSD-3-Clause
// A library that is opened at run time, and a table of its functions.
#pragma once

#include <string>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// Never closed: threads of the library may outlive every caller.
struct SharedLibrary {
  void* handle = nullptr;
  std::string why;  // why there is no handle: what the loader says

  C10D_API void* find(const char* name) const;
};

// A name without a slash is looked for where the loader looks.
C10D_API SharedLibrary open_library(const std::string& path);

// The file that holds the code at `address`; empty if the loader does not know.
C10D_API std::string file_of(const void* address);

}}  // namespace c10d::v0
