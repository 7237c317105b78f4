// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

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

// Whether ranks exchange every byte over connections, as the factors of busbw assume. The ranks of
// the others share memory.
bool has_connections(std::string_view backend);

// Fills alg, mem and, of a backend with connections, bus from the median.
void put_bandwidth(const Case& c, int ranks, CellRecord& cell);

}  // namespace c10d::bench
