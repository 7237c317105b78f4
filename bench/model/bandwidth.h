// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
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

// Whether ranks exchange every byte over connections or links, as the factors of busbw assume. The
// ranks of the others share memory, of the host or of a GPU.
bool has_connections(const CellRecord& cell);

// The bytes that each host must at least send or receive where every host has as many ranks; S is
// `bytes`, and `ranks` are those of all hosts. 0 for an op that has no such bound.
double bytes_between_hosts(std::string_view op, std::uint64_t bytes, int hosts, int ranks);

// Fills alg from the median, mem where the ranks share memory of the host, bus where there are
// connections, and net where these are between hosts.
void put_bandwidth(const Case& c, int hosts, int ranks, CellRecord& cell);

}  // namespace c10d::bench
