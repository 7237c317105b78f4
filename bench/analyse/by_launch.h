// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bench/model/record.h"

namespace c10d::bench {

// Blocks of one cell on one backend.
using Blocks = std::vector<const CellRecord*>;

// What `value` says of each block, by launch, as bootstrap() takes it. Blocks without a positive
// value are left out.
template <class F>
std::vector<std::vector<double>> by_launch(const Blocks& blocks, F&& value) {
  std::map<int, std::vector<double>> launches;
  for (const CellRecord* cell : blocks)
    if (const std::optional<double> v = value(*cell); v && *v > 0)
      launches[cell->launch].push_back(*v);
  std::vector<std::vector<double>> values;
  for (auto& [launch, list] : launches) values.push_back(std::move(list));
  return values;
}

}  // namespace c10d::bench
