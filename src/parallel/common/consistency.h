// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "c10d/process_group.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Collective: a group of the same ranks, for a thread of the caller's own.
ProcessGroup duplicate_group(const ProcessGroup& group, std::string_view name);

}}}  // namespace c10d::v0::parallel
