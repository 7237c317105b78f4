// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "c10d/view.h"
#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {

// "memory of cuda:1", or "host memory".
inline std::string memory_of(Device device) {
  if (device.type == DeviceType::cpu) return "host memory";
  return fmt::format("memory of {}:{}", to_string(device.type), device.index);
}
// Why the CPU, which computes what is in this folder, cannot read a view; or empty.
inline std::string why_not_on_host(const ConstView& view) {
  if (view.device.type == DeviceType::cpu) return {};
  return memory_of(view.device) +
         ", and it is the CPU that reads it: copy it to host memory first (cuda::copy)";
}
// Throws InvalidArgument unless the CPU can read all of them.
inline void check_on_host(std::string_view who, std::initializer_list<ConstView> views) {
  for (const ConstView& view : views)
    if (const std::string why = why_not_on_host(view); !why.empty())
      throw_invalid("{}: it was given {}", who, why);
}

}}}  // namespace c10d::v0::parallel
