// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/common/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <limits>
#include <unordered_set>

#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {

std::string to_text(std::span<const std::int64_t> shape, DType dtype) {
  return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", "));
}

namespace {

void check_shape(std::string_view who, const ParamSpec& spec) {
  if (static_cast<int>(spec.dtype) >= kDTypeCount)
    throw_invalid("{}: parameter {} has dtype {}, which does not exist", who, spec.name,
                  static_cast<int>(spec.dtype));
  std::size_t room = std::numeric_limits<std::ptrdiff_t>::max() / size_of(spec.dtype);
  for (const std::int64_t extent : spec.shape) {
    if (extent < 0)
      throw_invalid("{}: parameter {} has the negative extent {}", who, spec.name, extent);
    if (extent == 0) return;
    room /= static_cast<std::size_t>(extent);
  }
  if (room == 0)
    throw_invalid("{}: parameter {} of {} is larger than memory", who, spec.name, to_text(spec));
}

}  // namespace

void check_list(std::string_view who, std::span<const ParamSpec> list) {
  std::unordered_set<std::string_view> names;
  for (const ParamSpec& spec : list) {
    if (spec.name.empty()) throw_invalid("{}: a parameter has no name", who);
    if (!names.insert(spec.name).second)
      throw_invalid("{}: two parameters are named {}", who, spec.name);
    check_shape(who, spec);
  }
}

}}}  // namespace c10d::v0::parallel
