// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// The name with the smallest edit distance to `word`; empty when the distance is more than a third
// of the word and more than `tolerance`.
C10D_API std::string_view nearest(std::string_view word, std::span<const std::string_view> names,
                                  std::size_t tolerance = 0);

}}  // namespace c10d::v0
