// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "src/group/group_state.h"

namespace c10d { inline namespace v0 {

// Has c10d::end_groups() (spi/backend.h) know a group of this process.
void remember_group(const std::shared_ptr<detail::GroupState>& state);
// Ends a group as with its last handle; problems are logged.
void end_group(std::shared_ptr<detail::GroupState> state) noexcept;

}}  // namespace c10d::v0
