// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/rendezvous/context.h>

#include <memory>

namespace c10d::inline v0 {

class OpenWaits;

// A mesh whose waits can be ended from outside. Gloo ends the waits on a connection that closes,
// but now and then it forgets a send that was under way, which then waits for its whole timeout.
class RevocableMesh final : public gloo::rendezvous::Context {
 public:
  RevocableMesh(int own_rank, int ranks);
  // Call once the mesh is connected, before the first op.
  void watch();
  // Every wait, now and later, throws. Only once the connections are closed: Gloo may still be
  // writing to the memory of an op before.
  void revoke();

 private:
  std::shared_ptr<OpenWaits> waits_;
};

}  // namespace c10d::inline v0
