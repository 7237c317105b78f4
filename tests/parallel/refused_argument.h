// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>

#include "c10d/error.h"

namespace c10d::parallel {

// What the InvalidArgument says that the call throws.
inline std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an InvalidArgument: " << error.what();
  }
  return "nothing was refused";
}

}  // namespace c10d::parallel
