// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/settings.h"

#include <fmt/format.h>

#include "c10d/env.h"
#include "c10d/error.h"

namespace c10d { inline namespace v0 { namespace nccl {

const Settings& settings() {
  static const Settings read{.accumulates_in_f32 = env_choice("C10D_NCCL_ACCUMULATE") == "f32",
                             .checks_before = env_choice("C10D_NCCL_CHECK") == "before",
                             .uses_windows = env_choice("C10D_NCCL_WINDOWS") == "on"};
  return read;
}

std::string why_no_settings() try {
  settings();
  return {};
} catch (const InvalidArgument& error) {
  return fmt::format("{}: set one of these, or unset it", error.what());
}

}}}  // namespace c10d::v0::nccl
