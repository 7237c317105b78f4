// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "src/control/control_plane.h"

namespace c10d { inline namespace v0 {

// In shared memory when all members are on one host, else over links between the ranks. Collective;
// returns when all ranks are in.
std::shared_ptr<ControlPlane> make_control_plane(const ControlOptions& options);

}}  // namespace c10d::v0
