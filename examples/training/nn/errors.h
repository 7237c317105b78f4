// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace nn {

// Throws std::invalid_argument, for a wrong argument or option.
template <class... Values>
[[noreturn]] void throw_invalid(fmt::format_string<Values...> message, Values&&... values) {
  throw std::invalid_argument(fmt::format(message, std::forward<Values>(values)...));
}

// Throws std::runtime_error, for what is wrong outside this program, such as in a file.
template <class... Values>
[[noreturn]] void throw_runtime(fmt::format_string<Values...> message, Values&&... values) {
  throw std::runtime_error(fmt::format(message, std::forward<Values>(values)...));
}

}  // namespace nn
