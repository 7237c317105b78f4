// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bench/model/options.h"

namespace c10d::bench {

// Operations per second and latency of a TcpStore on loopback, with 1, 16 and 128 clients.
int run_store_bench(const Options& options);

}  // namespace c10d::bench
