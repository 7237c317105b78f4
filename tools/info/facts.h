// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nlohmann/json.hpp>

namespace c10d { inline namespace v0 {

// All that c10d-info says, one object per section: version, host, launch, backends, capabilities,
// limits, environment.
nlohmann::ordered_json collect_facts();

}}  // namespace c10d::v0
