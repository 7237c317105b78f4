// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>

#include "c10d/spi/backend.h"
#include "src/backends/mpi/communicators.h"
#include "src/backends/mpi/p2p.h"
#include "src/sync/thread_pool.h"

namespace c10d { inline namespace v0 {

inline constexpr std::chrono::milliseconds kGrace{300};  // for MPI to return once a group broke

// The collectives of one group: in the calling thread or, when they are async, in a thread of the
// group. All ranks agree on each before it starts, because MPI can neither name a missing rank nor
// be interrupted. Once they are inside, a peer that dies or is stopped holds the others. An op of 1
// MiB or more is polled, and ends with the group or at its deadline. A smaller one is a blocking
// call of MPI, which is faster: at the deadline the group breaks on all ranks, but the thread stays
// inside; of an async op the Work fails all the same.
class Collectives {
 public:
  Collectives(const BackendContext& context, Communicators comms,
              std::shared_ptr<Transfers> transfers);

  Work launch(const Call& call);
  // Whether every async op is done; waits for it until the deadline.
  bool idle(Deadline deadline) { return thread_.idle(deadline); }
  bool is_done() { return idle(Deadline::min()); }
  // Ends the async ops that MPI holds, soon. Once the group is broken.
  void abort() noexcept;

 private:
  class Unfinished;

  FailurePtr run(const Call& call);  // null is success; never throws
  template <class T>
  FailurePtr run_op(const Call& call, const T& op);
  Work launch_async(const Call& call);
  void wait_for_async_ops(const Call& call);

  BackendContext context_;
  Communicators comms_;
  const std::shared_ptr<Transfers> transfers_;
  const std::shared_ptr<Unfinished> unfinished_;  // the async ones
  ThreadPool thread_;                             // theirs: last, since they use the rest
};

// If MPI holds one of the ops, its thread and what it uses are kept for good.
void give_up(std::unique_ptr<Collectives> collectives);

}}  // namespace c10d::v0
