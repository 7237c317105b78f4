// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string_view>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// The name with the smallest edit distance to `word`, or empty when none is near enough to be
// meant.
C10D_API std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

}}  // namespace c10d::v0
