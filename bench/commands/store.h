// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace c10d::bench {

// Operations per second and latency of a TcpStore on loopback, with 1, 16 and 128 clients; each
// line of the table takes `seconds`.
int run_store_bench(double seconds, bool as_json);

}  // namespace c10d::bench
