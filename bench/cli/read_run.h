// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bench/cli/option_table.h"
#include "bench/model/options.h"

namespace c10d::bench {

// Whether --device is cuda. Throws InvalidArgument where it is neither that nor cpu.
bool is_cuda(const RawOptions& raw);
// Checks what run or compare was given and puts the values into `options`. Throws InvalidArgument.
void read_run(const RawOptions& raw, RunOptions& options);

}  // namespace c10d::bench
