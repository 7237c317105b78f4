// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// One environment variable that the project reads. env() of c10d/env.h reads no other.
struct EnvVariable {
  std::string_view name;           // "C10D_BACKEND"
  std::string_view default_value;  // as text; empty = unset
  std::string_view help;           // one sentence
  bool secret = false;             // never printed
  std::string_view values = {};    // the values that it may have, by spaces; empty = any
};
// The table of all variables.
C10D_API std::span<const EnvVariable> env_variables() noexcept;

// A C10D_* variable that is set and that nothing reads.
struct UnknownEnv {
  std::string name;     // as it is set
  std::string nearest;  // the name in the table that is most like it
};
// All C10D_* variables that are set but not in the table: for a warning.
C10D_API std::vector<UnknownEnv> unknown_env();

}}  // namespace c10d::v0
