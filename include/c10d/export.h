// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Marks what libc10d.so exports: all else is hidden.
#define C10D_API __attribute__((visibility("default")))
