// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "c10d/spi/backend.h"
#include "src/backends/nccl/nccl.h"

namespace c10d { inline namespace v0 { namespace nccl {

// One communicator of NCCL, a blocking one (docs/adr/0015): its calls may wait for
// peers, and another thread ends them by abort(). Every call of NCCL that can wait for ever runs in
// a thread of its own here, so that a deadline holds.
class Communicator {
 public:
  // Collective over the group, whose members meet in its store. Throws DistError: two ranks on one
  // GPU, a peer that did not come until the deadline, the failure of the group, what NCCL says.
  Communicator(const BackendContext& context, Deadline deadline);
  // Destroys it, unless it was aborted. What NCCL does not end stays in its thread.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Comm get() const noexcept;
  // What NCCL says of it now.
  Result async_error() const noexcept;
  // Ends its ops and its calls in other threads, in a thread of its own. Returns at once. Once.
  void abort() noexcept;
  // Whether abort() was called and is through, or has taken so long that it never will be: then
  // the ops are over for the program, and the log says that NCCL holds them.
  bool is_over() noexcept;
  // Waits for the other ranks and for NCCL; aborts at the deadline.
  void destroy(Deadline deadline) noexcept;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}}}  // namespace c10d::v0::nccl
