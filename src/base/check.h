// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

// A broken invariant of our own: a bug. Throws std::logic_error, which the funnel turns into a
// failure of the group; the process continues.
#define C10D_CHECK(condition)                                                               \
  ((condition)                                                                              \
       ? static_cast<void>(0)                                                               \
       : throw std::logic_error(std::string("c10d bug: check failed: " #condition " at ") + \
                                __FILE__ + ":" + std::to_string(__LINE__)))
