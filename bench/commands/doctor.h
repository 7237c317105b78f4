// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace c10d::bench {

// What this machine offers to a benchmark, and what speaks against trusting one here. Measures
// nothing.
int print_doctor(bool as_json);

}  // namespace c10d::bench
