// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <iosfwd>
#include <vector>

#include "bench/record.h"

namespace c10d::bench {

// The cell records, one row per block, one column per independent variable.
void write_csv(const std::vector<CellRecord>& cells, std::ostream& out);

}  // namespace c10d::bench
