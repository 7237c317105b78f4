// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "c10d/parallel/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {

// "f32 [64, 3, 3]"
std::string to_text(std::span<const std::int64_t> shape, DType dtype);
inline std::string to_text(const ParamSpec& spec) { return to_text(spec.shape, spec.dtype); }

// Throws InvalidArgument, which begins with `who`, for a list with an empty or repeated name, a
// negative extent, or more elements than memory can hold.
void check_list(std::string_view who, std::span<const ParamSpec> list);

}}}  // namespace c10d::v0::parallel
