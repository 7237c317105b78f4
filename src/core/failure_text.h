// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/error.h"

namespace c10d::inline v0 {

// A failure as text for the store, and back; the group is the reader's. Text that is none gives
// `corrupt`.
std::string to_text(const Failure& failure);
Failure from_text(const std::string& text);

}  // namespace c10d::inline v0
