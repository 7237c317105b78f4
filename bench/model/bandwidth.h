// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bench/model/cases.h"
#include "bench/model/record.h"

namespace c10d::bench {

// The base measured once more, for the A/A control, carries its name with this behind it.
inline constexpr const char* kControlSuffix = "~aa";
// A backend that was measured in processes of its own.
inline constexpr const char* kSoloSuffix = "~solo";
inline bool is_control(const std::string& backend) {
  return backend.ends_with(kControlSuffix) || backend.ends_with(kSoloSuffix);
}

// Fills alg, bus and mem from the median. On one host bus stays empty: ranks share the memory's
// bandwidth.
void put_bandwidth(const Case& c, int ranks, CellRecord& cell);

}  // namespace c10d::bench
