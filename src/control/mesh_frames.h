// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace c10d { inline namespace v0 {

// The frames of a mesh. The first three every rank passes on to its neighbours, once.
enum MeshFrame : std::uint8_t {
  revoke_frame = 1,  // the failure that broke the group, as text
  left_frame,        // a rank left in good order: its number, its last call and last barrier
  ended_frame,       // a rank lost its connection to this one: its number
  call_frame,        // of dissemination.h, between two neighbours
  barrier_frame,
  beat_frame  // of an idle link: what it sends, TCP sends again if it is lost
};

}}  // namespace c10d::v0
