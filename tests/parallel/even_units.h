// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include "c10d/parallel/fsdp.h"

namespace c10d::parallel {

// A unit per number, of so many blocks of 4,096 elements.
inline std::vector<Unit> even_units(std::initializer_list<std::int64_t> blocks) {
  std::vector<Unit> units;
  for (const std::int64_t count : blocks) {
    const std::string name = "layer" + std::to_string(units.size());
    units.push_back({name, {{name + ".w", {count, 4096}, DType::f32}}});
  }
  return units;
}

// Gathers a unit, sums its gradient as it is, and lets the unit go.
inline void pass_through(Fsdp& fsdp, std::size_t unit) {
  fsdp.unshard(unit);
  fsdp.next_gradient(unit);
  fsdp.gradient_done(unit);
  fsdp.reduce(unit);
  fsdp.reshard(unit);
}

}  // namespace c10d::parallel
