// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "c10d/process_group.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Collective. Calls `local` and returns what it returned on every rank, by rank. When it throws on
// some rank, every rank throws CheckpointError with what the lowest of them threw: no rank waits
// for one that failed. `phase` names the call and what ranks must agree on; one that differs is an
// error as well.
std::vector<nlohmann::json> agree(const ProcessGroup& group, std::string_view phase,
                                  const std::function<nlohmann::json()>& local);

}}}  // namespace c10d::v0::parallel
