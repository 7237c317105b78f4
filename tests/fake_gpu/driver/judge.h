// SPDX-License-Identifier: BSD-3-Clause
// Collects what must never happen, and writes it to $FAKE_GPU_REPORTS/PID.json: at each violation,
// at each change of what the process holds, and at its end.
#pragma once

#include "tests/fake_gpu/gpu.h"

namespace fake_gpu {

// One more or one less of "stream", "event", and so on.
void holds(const char* what, int change);
// Where the driver crashes: says why, and does so.
[[noreturn]] void crash(const std::string& why);
// Called by cuInit: from now on there is a report.
void begin_report();

}  // namespace fake_gpu
