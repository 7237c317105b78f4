// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

inline constexpr std::string_view kVersion = "0.1.0";  // CMakeLists.txt reads it from here

// The version of the library that is loaded, with compiler and build type: "0.1.0 (g++ 12.2.0,
// Release)".
C10D_API std::string version();

}}  // namespace c10d::v0
