// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "bench/model/options.h"

namespace c10d::bench {

// Parses the command line. Returns nothing but an exit code when there is nothing to run (help,
// version), else options. Prints help on stdout, mistakes on stderr with exit code 2.
struct Parsed {
  std::optional<int> exit_code;
  Options options;
};
Parsed parse_options(int argc, const char* const* argv);

}  // namespace c10d::bench
