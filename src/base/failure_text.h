// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "c10d/error.h"

namespace c10d { inline namespace v0 {

// A failure as text for the store, and back; the group is the reader's. Text that is none gives
// `corrupt`.
std::string to_text(const Failure& failure);
Failure from_text(const std::string& text);

// How many bytes of a text that may have at most `most` stay, so that no character of UTF-8 is cut.
std::size_t fitting(std::string_view text, std::size_t most) noexcept;

// What `error`, thrown inside `thrower`, becomes where exceptions end. That of a lack of memory
// takes none.
C10D_API Failure failure_from_exception(const std::exception& error, std::string_view thrower);

}}  // namespace c10d::v0
