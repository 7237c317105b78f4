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

// The time until the deadline, at least a millisecond: to Gloo, 0 means for ever.
inline std::chrono::milliseconds time_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

// A context whose waits another thread can end. Gloo ends the waits on a connection that closes,
// but sometimes it forgets a send in progress, which then waits for its whole timeout.
class RevocableContext final : public gloo::Context {
 public:
  RevocableContext(int own_rank, int ranks);
  // Call once `connections` has one to every other rank, before the first op.
  void adopt(std::shared_ptr<gloo::transport::Device> device,
             std::shared_ptr<gloo::transport::Context> connections);
  // The context for one op: none of its waits ends later than the deadline, however many the op
  // has.
  std::shared_ptr<gloo::Context> until(Deadline deadline) const;
  // Every wait, now and later, throws. Only after the connections are closed: before, Gloo may
  // still write to the memory of an op.
  void revoke();

 private:
  std::shared_ptr<OpenWaits> waits_;
  std::shared_ptr<gloo::transport::Context> connections_;  // that transportContext_ wraps
};

}}  // namespace c10d::v0
