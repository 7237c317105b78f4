// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/model/record.h"

namespace c10d::bench {

// The cell records, one row per block, one column per independent variable.
std::string csv_text(const std::vector<CellRecord>& cells);

}  // namespace c10d::bench
