// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// The job's secret from C10D_TOKEN_FILE=`path`, which nobody else may read. Throws InvalidArgument.
C10D_API std::string read_token_file(const std::string& path);
// From the inherited C10D_TOKEN_FD=`fd`, which stays open. Throws InvalidArgument.
C10D_API std::string read_token_fd(int fd);

}}  // namespace c10d::v0
