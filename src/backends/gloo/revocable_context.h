// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "c10d/store.h"

namespace c10d { inline namespace v0 {

class OpenWaits;

// What is left until the deadline, at least a millisecond: to Gloo, 0 would mean for ever.
inline std::chrono::milliseconds time_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

// A mesh whose waits can be ended from outside. Gloo ends the waits on a connection that closes,
// but now and then it forgets a send that was under way, which then waits for its whole timeout.
class RevocableMesh final : public gloo::Context {
 public:
  RevocableMesh(int own_rank, int ranks);
  // Call once `connections` has one to every other rank, before the first op.
  void adopt(std::shared_ptr<gloo::transport::Device> device,
             std::shared_ptr<gloo::transport::Context> connections);
  // The mesh for one op: none of its waits ends later than the deadline, however many the op has.
  std::shared_ptr<gloo::Context> until(Deadline deadline) const;
  // Every wait, now and later, throws. Only once the connections are closed: Gloo may still be
  // writing to the memory of an op before.
  void revoke();

 private:
  std::shared_ptr<OpenWaits> waits_;
  std::shared_ptr<gloo::transport::Context> connections_;  // beneath the transport
};

}}  // namespace c10d::v0
