// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace c10d::bench {

// Prints the names of a topic: ops, backends, dtypes, redops, columns. Throws InvalidArgument for
// another one.
int print_list(const std::string& topic, bool as_json);

}  // namespace c10d::bench
