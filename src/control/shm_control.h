// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/control/control_plane.h"

namespace c10d { inline namespace v0 {

// The control plane of ranks on one host: every rank's block in one sealed mapping.
std::shared_ptr<ControlPlane> make_shm_control(const ControlOptions& options);

}}  // namespace c10d::v0
