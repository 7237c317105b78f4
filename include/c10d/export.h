// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Everything in libc10d.so is hidden unless marked with C10D_API.
#define C10D_API __attribute__((visibility("default")))
