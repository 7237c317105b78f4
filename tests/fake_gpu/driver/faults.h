// SPDX-License-Identifier: BSD-3-Clause
// What the script does to ops on streams; fault() of gpu.h does it to calls.
#pragma once

#include "tests/fake_gpu/driver/script.h"
#include "tests/fake_gpu/gpu.h"

namespace fake_gpu {

// What happens to one op, found when it is enqueued: the number of an op is its place among those
// that its rank enqueues.
using OpFaults = std::vector<const Clause*>;
OpFaults op_faults(const std::string& function);
// Before the body: false if it must not run.
bool before_op(const OpFaults& faults, Running& running, const AbortFlag* abort);
void after_op(const OpFaults& faults);

}  // namespace fake_gpu
