// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// Every environment variable that the project reads, in one table: the only way to read one is
// env(), and a test fails the build for a name that is not here.
struct EnvVariable {
  std::string_view name;
  std::string_view default_value;  // as text; empty = unset
  std::string_view help;           // one sentence
  bool secret = false;             // never printed
  std::string_view values = {};    // the words that it may be, by spaces; empty = any
};
C10D_API std::span<const EnvVariable> env_variables() noexcept;

// The value, or nothing when unset or empty. `name` must be in the table.
C10D_API std::optional<std::string> env(std::string_view name);
// The same as a whole number in [min, max]. Throws InvalidArgument naming the variable and its
// value.
C10D_API std::optional<std::int64_t> env_integer(std::string_view name, std::int64_t min,
                                                 std::int64_t max);

// The same of a variable whose table entry lists the words that it may be. Throws InvalidArgument
// naming the variable, its value and those words.
C10D_API std::optional<std::string> env_choice(std::string_view name);

// C10D_* variables that are set but not in the table, each with the nearest name: for a warning.
struct UnknownEnv {
  std::string name;
  std::string nearest;
};
C10D_API std::vector<UnknownEnv> unknown_env();

// Where rank and size come from: the first complete family in the order of docs/launching.md.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  // "c10d", "torchrun", "openmpi", "pmi", "slurm", "k8s", or "none": a single process.
  std::string launcher;
  std::vector<std::string> evidence;  // "RANK=3", ...: what decided
};
// Throws InvalidArgument for a malformed number, or two complete families that disagree (settled by
// C10D_LAUNCHER).
C10D_API LaunchInfo detect_launch();

}}  // namespace c10d::v0
