// SPDX-License-Identifier: BSD-3-Clause
// The same as C++, of the oldest and the newest standard.
#include "tests/c/header.c"
