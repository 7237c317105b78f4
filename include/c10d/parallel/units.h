// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "c10d/export.h"
#include "c10d/parallel/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Parameters that are gathered and summed together: a layer, or several. They lie one behind the
// other in one arena of f32, in this order.
struct Unit {
  std::string name;
  std::vector<ParamSpec> parameters;  // f32; names differ over all units
};

// What stands before the last dot of a parameter's name; the whole name where there is none.
C10D_API std::string layer_of(const ParamSpec& parameter);

// How parameters are wrapped into units.
struct WrapPolicy {
  std::size_t min_bytes = 0;  // neighbours are joined until a unit has so many; none is split
  // Neighbours for which it gives the same name belong together, and bear it.
  std::function<std::string(const ParamSpec&)> unit_of = layer_of;
};

// In the order of the parameters. Units that are joined bear the name of the first; the last one
// may have less than min_bytes.
C10D_API std::vector<Unit> wrap(std::span<const ParamSpec> parameters,
                                const WrapPolicy& policy = {});

}}}  // namespace c10d::v0::parallel
