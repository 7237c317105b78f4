// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "c10d/backend.h"

namespace c10d { inline namespace v0 {

struct OpenedModule {
  const BackendModule* module = nullptr;  // null: `reason` says why
  std::string path;                       // of the file, when there is one
  std::string reason;
};

// Where modules are looked for, in this order: the folders of C10D_BACKEND_PATH, then
// c10d/backends beside the library.
std::vector<std::string> module_folders();

// Opens libc10d_<stem>.so from the first folder that has it. The module stays open until the
// process ends; later calls give the same answer without looking again once it was found.
OpenedModule open_module(std::string_view stem);

// The stems of all modules that lie in the folders.
std::vector<std::string> module_stems();

}}  // namespace c10d::v0
