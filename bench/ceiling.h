// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace c10d::bench {

// Measures what bounds any collective on this host: memcpy per cache level, a flag between two
// cores, a stream through shared memory, loopback TCP. Prints it; returns an exit code.
int print_ceilings(bool as_json);

}  // namespace c10d::bench
