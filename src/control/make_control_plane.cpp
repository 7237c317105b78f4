// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/make_control_plane.h"

#include "src/control/mesh_control.h"
#include "src/control/shm_control.h"

namespace c10d { inline namespace v0 {

std::shared_ptr<ControlPlane> make_control_plane(const ControlOptions& options) {
  for (const Member& member : options.members)
    if (!member.same_host) return make_mesh_control(options);
  return make_shm_control(options);
}

}}  // namespace c10d::v0
