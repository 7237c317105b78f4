// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>

#include "c10d/c.h"
#include "c10d/error.h"

// What the C interface makes of exceptions.
namespace c10d { inline namespace v0 { namespace c {

// The failure as C sees it. Its strings are those of `error`.
c10d_failure to_c(const DistError& error) noexcept;

// Keeps the exception that is being handled for c10d_last_failure() of this thread, and returns its
// code.
c10d_code keep_exception() noexcept;

// Runs the body of a function of the C interface. f returns nothing or a code.
template <class F>
c10d_code call(F f) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      return C10D_OK;
    } else {
      return f();
    }
  } catch (...) {
    return keep_exception();
  }
}

}}}  // namespace c10d::v0::c
