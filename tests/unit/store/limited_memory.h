// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace c10d::test {

// The most bytes that this thread gets at once; SIZE_MAX: any number.
extern thread_local std::size_t t_most_bytes;

}  // namespace c10d::test
