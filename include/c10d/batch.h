// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "c10d/call.h"
#include "c10d/collective.h"
#include "c10d/export.h"
#include "c10d/work.h"

namespace c10d { inline namespace v0 {

namespace detail {
struct GroupState;
}

// Collects ops of one group and starts them together:
//
//     Batch batch = group.batch();
//     batch.add(Send{output, next, tag});
//     batch.add(Recv{input, previous, tag});
//     batch.submit();
//
// The order of the sends and receives in a batch does not matter: they cannot deadlock on each
// other (ncclGroupStart, torch's batch_isend_irecv). A batch that is dropped without submit() does
// nothing. Use it from one thread at a time.
class C10D_API Batch {
 public:
  // Adds an op. A message that a Recv takes must have exactly as many elements. Its spans of counts
  // must stay valid until submit(), the memory of its buffers until the op is done.
  void add(Op op);
  // Starts all ops, empties the batch, and returns once all are done. Throws what the first op that
  // fails throws.
  // Checks all ops first: when one of them is InvalidArgument or unsupported, it throws that and
  // starts none. Otherwise the errors of every op.
  void submit();
  // The same, but returns at once. The Work is done when all ops are, and fails as the first op
  // that fails.
  Work submit_async();

 private:
  friend class ProcessGroup;
  Batch(std::shared_ptr<detail::GroupState> state, CallOptions options);
  std::shared_ptr<detail::GroupState> state_;
  CallOptions options_;
  std::vector<Op> ops_;
};

}}  // namespace c10d::v0
