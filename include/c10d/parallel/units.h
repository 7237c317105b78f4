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

// Parameters that Fsdp gathers and reduces together: a layer, or several. They lie one behind the
// other in one array, in this order.
struct Unit {
  std::string name;                   // for messages
  std::vector<ParamSpec> parameters;  // f32; each has a name of its own over all units
};

// Name of the layer of a parameter: its name up to the last dot, or the whole name without a dot.
C10D_API std::string layer_of(const ParamSpec& parameter);

// How wrap() makes units.
struct WrapPolicy {
  std::size_t min_bytes = 0;  // join neighbouring layers until a unit has so many bytes
  // Name of the unit of a parameter. Neighbouring parameters with the same name are never split.
  std::function<std::string(const ParamSpec&)> unit_of = layer_of;
};

// Wraps parameters into units, in the order of the parameters (FSDP: auto wrap policy). A unit of
// several layers has the name of the first; the last unit may have less than min_bytes.
C10D_API std::vector<Unit> wrap(std::span<const ParamSpec> parameters,
                                const WrapPolicy& policy = {});

}}}  // namespace c10d::v0::parallel
