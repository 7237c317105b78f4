// SPDX-License-Identifier: BSD-3-Clause
// What the script does to ops on streams; fault() of gpu.h does it to calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

// How often a function was called, and the number of the first call from each place. Only with a
// script that needs to know.
struct Calls {
  std::uint64_t count = 0;
  std::map<std::string, std::uint64_t> first;
};
std::map<std::string, Calls> calls();

}  // namespace fake_gpu
