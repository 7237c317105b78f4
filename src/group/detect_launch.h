// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "c10d/env.h"

namespace c10d { inline namespace v0 {

using EnvLookup = std::function<std::optional<std::string>(std::string_view name)>;

// detect_launch() on an environment of the caller's choice.
LaunchInfo detect_launch(const EnvLookup& lookup);

}}  // namespace c10d::v0
