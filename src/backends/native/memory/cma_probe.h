// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "src/backends/native/memory/layout.h"

namespace c10d { inline namespace v0 { namespace native {

// Writes down where `word`, a member of whoever calls, is to be found, and gives it a value.
void introduce(Identity& own, std::uint64_t& word) noexcept;
// Whether the kernel lets this process read the memory of one that has introduced itself:
// containers and security modules may not.
bool is_readable(const Identity& theirs) noexcept;

}}}  // namespace c10d::v0::native
