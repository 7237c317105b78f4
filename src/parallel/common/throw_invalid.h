// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <utility>

#include "c10d/error.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Throws InvalidArgument with this message.
template <class... Values>
[[noreturn]] void throw_invalid(fmt::format_string<Values...> message, Values&&... values) {
  throw InvalidArgument(fmt::format(message, std::forward<Values>(values)...));
}

}}}  // namespace c10d::v0::parallel
