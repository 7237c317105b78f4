// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/control/control_plane.h"

namespace c10d { inline namespace v0 {

// The control plane of ranks on several hosts: announcements and the first failure travel through
// the store, at the cost of two requests per collective. A dead peer shows through its backend's
// connection only.
std::shared_ptr<ControlPlane> make_store_control(const ControlOptions& options);

}}  // namespace c10d::v0
