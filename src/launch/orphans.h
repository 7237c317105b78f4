// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// Kills every process whose environment holds `marker` ("NAME=value"), until none is found.
// Processes that left their group or session are found too, unless they wiped their environment.
// Returns how many were killed. Async-signal-safe, for a forked child of a threaded process.
C10D_API int kill_marked_processes(const char* marker) noexcept;

}}  // namespace c10d::v0
