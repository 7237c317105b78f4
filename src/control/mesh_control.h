// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/control/control_plane.h"

namespace c10d { inline namespace v0 {

// The control plane of ranks on several hosts. A rank tells its neighbours (mesh.h) that it has
// come to a call, that it leaves, and what broke the group; the end of a connection shows a dead
// rank or a lost host. The store brings the ranks together, decides which of several failures was
// first, and carries what is compared behind calls on GPUs.
std::shared_ptr<ControlPlane> make_mesh_control(const ControlOptions& options);

}}  // namespace c10d::v0
