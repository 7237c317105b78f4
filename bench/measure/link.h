// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/meeting/connection.h"
#include "c10d/store.h"

namespace c10d::bench {

// What TCP connections between two hosts carry, in a plain loop without any backend.
struct LinkRates {
  double round_trip_us = 0;  // of one byte, median
  struct Flow {
    int streams = 1;       // connections at once
    double one_way = 0;    // GB/s, to the host of rank 0
    double both_ways = 0;  // GB/s in each direction, both at once
  };
  std::vector<Flow> flows;
};

// The end of rank 0 listens on `address`. Collective over the two ends. Takes about a second, and
// at most `timeout`. Throws DistError.
LinkRates measure_link(End end, Store& store, const std::string& address, Duration timeout);

}  // namespace c10d::bench
