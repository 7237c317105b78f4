// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// Value of an environment variable, or nothing when it is unset or empty. All variables that the
// project reads are in one table, which `c10d-info --env` prints. Throws InvalidArgument when
// `name` is not in it.
C10D_API std::optional<std::string> env(std::string_view name);
// Value of a variable as a whole number. Throws InvalidArgument that names the variable and its
// value unless it is a number in [min, max]; also when `name` is not in the table.
C10D_API std::optional<std::int64_t> env_integer(std::string_view name, std::int64_t min,
                                                 std::int64_t max);

// Value of a variable whose entry in the table lists the values that it may have. Throws
// InvalidArgument that names the variable, its value and those values when it is none of them; also
// when `name` is not in the table.
C10D_API std::optional<std::string> env_choice(std::string_view name);

// Rank and size of this process, as its launcher set them in the environment.
struct LaunchInfo {
  int rank = 0;        // in the job
  int size = 1;        // ranks of the job
  int local_rank = 0;  // on this host
  int local_size = 1;  // ranks on this host
  // "c10d", "torchrun", "openmpi", "pmi", "slurm", "k8s", or "none": a single process.
  std::string launcher;
  std::vector<std::string> evidence;  // the variables that decided: "RANK=3", ...
};
// Finds the launcher of this process: the first one of docs/launching.md whose variables are
// complete. Throws InvalidArgument for a number that is malformed, or when two complete launchers
// disagree: then C10D_LAUNCHER decides.
C10D_API LaunchInfo detect_launch();

}}  // namespace c10d::v0
