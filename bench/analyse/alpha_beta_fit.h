// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/analyse/op_table.h"

namespace c10d::bench {

// Start-up and pace of each backend over the sizes, from the smallest on, where a line holds within
// a fifth; and where it and the base change places. Backends with fewer than three sizes have no
// record.
std::vector<FitRecord> fits_of(const OpTable& table);

// The lines under a table that say so; empty without fits.
std::string fit_text(const OpTable& table, std::size_t width);

}  // namespace c10d::bench
