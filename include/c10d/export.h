// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#if __cplusplus < 202002L
#error "c10d needs C++20: compile with -std=c++20 (CMake: target_link_libraries sets it)"
#endif

// Marks what libc10d.so exports: all else is hidden.
#define C10D_API __attribute__((visibility("default")))
