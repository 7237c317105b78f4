// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "c10d/call.h"
#include "c10d/collective.h"
#include "c10d/export.h"
#include "c10d/work.h"

namespace c10d { inline namespace v0 {

namespace detail {
struct GroupState;
}

// The async form of the ops of a ProcessGroup:
//
//     Work sum = group.async().all_reduce(gradient);
//     compute();
//     sum.wait();
//
// Each method has the contract of the method of ProcessGroup with that name, but returns at once.
// The op uses its buffers until the Work is done. Declare the buffers before the Work: its
// destructor waits, so that an exception in between cannot free them too early. Counts are read
// before the call returns. It is a handle of
// the group, as ProcessGroup is.
class C10D_API AsyncGroup {
 public:
  // See ProcessGroup::all_reduce().
  Work all_reduce(View buffer, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  // See ProcessGroup::all_reduce().
  Work all_reduce(View buffer, CallOptions options) const {
    return all_reduce(buffer, ReduceOp::sum, options);
  }
  // See ProcessGroup::all_reduce().
  Work all_reduce(View output, ConstView input, ReduceOp op = ReduceOp::sum,
                  CallOptions options = {}) const;
  // See ProcessGroup::all_reduce().
  Work all_reduce(View output, ConstView input, CallOptions options) const {
    return all_reduce(output, input, ReduceOp::sum, options);
  }
  // See ProcessGroup::broadcast().
  Work broadcast(View buffer, int root, CallOptions options = {}) const;
  // See ProcessGroup::broadcast().
  Work broadcast(View output, ConstView input, int root, CallOptions options = {}) const;
  // See ProcessGroup::all_gather().
  Work all_gather(View output, ConstView input, CallOptions options = {}) const;
  // See ProcessGroup::all_gather_v().
  Work all_gather_v(View output, ConstView input, const Counts& counts,
                    CallOptions options = {}) const;
  // See ProcessGroup::reduce_scatter().
  Work reduce_scatter(View output, ConstView input, ReduceOp op = ReduceOp::sum,
                      CallOptions options = {}) const;
  // See ProcessGroup::reduce_scatter().
  Work reduce_scatter(View output, ConstView input, CallOptions options) const {
    return reduce_scatter(output, input, ReduceOp::sum, options);
  }
  // See ProcessGroup::reduce_scatter_v().
  Work reduce_scatter_v(View output, ConstView input, const Counts& counts,
                        ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  // See ProcessGroup::reduce_scatter_v().
  Work reduce_scatter_v(View output, ConstView input, const Counts& counts,
                        CallOptions options) const {
    return reduce_scatter_v(output, input, counts, ReduceOp::sum, options);
  }
  // See ProcessGroup::reduce().
  Work reduce(View output, ConstView input, int root, ReduceOp op = ReduceOp::sum,
              CallOptions options = {}) const;
  // See ProcessGroup::reduce().
  Work reduce(View output, ConstView input, int root, CallOptions options) const {
    return reduce(output, input, root, ReduceOp::sum, options);
  }
  // See ProcessGroup::scan().
  Work scan(View buffer, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  // See ProcessGroup::scan().
  Work scan(View buffer, CallOptions options) const { return scan(buffer, ReduceOp::sum, options); }
  // See ProcessGroup::scan().
  Work scan(View output, ConstView input, ReduceOp op = ReduceOp::sum,
            CallOptions options = {}) const;
  // See ProcessGroup::scan().
  Work scan(View output, ConstView input, CallOptions options) const {
    return scan(output, input, ReduceOp::sum, options);
  }
  // See ProcessGroup::exscan().
  Work exscan(View buffer, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  // See ProcessGroup::exscan().
  Work exscan(View buffer, CallOptions options) const {
    return exscan(buffer, ReduceOp::sum, options);
  }
  // See ProcessGroup::exscan().
  Work exscan(View output, ConstView input, ReduceOp op = ReduceOp::sum,
              CallOptions options = {}) const;
  // See ProcessGroup::exscan().
  Work exscan(View output, ConstView input, CallOptions options) const {
    return exscan(output, input, ReduceOp::sum, options);
  }
  // See ProcessGroup::gather().
  Work gather(View output, ConstView input, int root, CallOptions options = {}) const;
  // See ProcessGroup::gather_v().
  Work gather_v(View output, ConstView input, const Counts& counts, int root,
                CallOptions options = {}) const;
  // See ProcessGroup::scatter().
  Work scatter(View output, ConstView input, int root, CallOptions options = {}) const;
  // See ProcessGroup::scatter_v().
  Work scatter_v(View output, ConstView input, const Counts& counts, int root,
                 CallOptions options = {}) const;
  // See ProcessGroup::all_to_all().
  Work all_to_all(View output, ConstView input, CallOptions options = {}) const;
  // See ProcessGroup::all_to_all_v().
  Work all_to_all_v(View output, ConstView input, const Counts& output_counts,
                    const Counts& input_counts, CallOptions options = {}) const;
  // See ProcessGroup::barrier().
  Work barrier(CallOptions options = {}) const;
  // See ProcessGroup::send().
  Work send(ConstView input, int peer, std::uint32_t tag = 0, CallOptions options = {}) const;
  // See ProcessGroup::send().
  Work send(ConstView input, int peer, CallOptions options) const {
    return send(input, peer, 0, options);
  }
  // See ProcessGroup::recv(). Work::received() is what recv() returns.
  Work recv(View output, int peer, std::uint32_t tag = 0, CallOptions options = {}) const;
  // See ProcessGroup::recv().
  Work recv(View output, int peer, CallOptions options) const {
    return recv(output, peer, 0, options);
  }
  // See ProcessGroup::submit().
  Work submit(const Op& op, CallOptions options = {}) const;

 private:
  friend class ProcessGroup;
  explicit AsyncGroup(std::shared_ptr<detail::GroupState> state) noexcept
      : state_(std::move(state)) {}
  std::shared_ptr<detail::GroupState> state_;
};

}}  // namespace c10d::v0
