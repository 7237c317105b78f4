// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/reduce.h"
#include "src/backends/native/hosts/host_collective.h"

namespace c10d { inline namespace v0 { namespace native {

using Pointers = std::vector<const std::byte*>;  // to the values of a host, or of all

// One reduction, as all its stages know it.
class Reducer {
 public:
  Reducer(HostCollective& collective, DType dtype, ReduceOp op)
      : collective_(collective),
        how_{dtype, op},
        sums_(collective.partial_sums().values(dtype, op.kind)),
        type_(sums_.inputs ? dtype : partial_type(dtype, op.kind)) {}

  DType dtype() const noexcept { return how_.dtype; }
  // Of the values that travel.
  DType type() const noexcept { return type_; }
  const PartialSums::Values& sums() const noexcept { return sums_; }
  // What the hosts exchange of `count` elements.
  HostTraffic traffic(OpKind op, std::size_t count) const noexcept {
    return reduction_traffic(collective_.placement(), sums_, op, how_.dtype, how_.op.kind, count);
  }

  // The values of this host, of the parts of `input` that its lanes carry: this rank gets those of
  // its own part, by place in `counts`, which come one after the other and make up all of it. They
  // may be the input itself, or are in `scratch`.
  bool reduce_here(Scratch& scratch, const ConstView& input, const std::vector<std::size_t>& counts,
                   Pointers& values);
  // The result of `count` elements out of the values of all hosts.
  void finish(std::byte* out, std::span<const std::byte* const> values, std::size_t count) const;

  // Of the sums of several hosts.
  DType sum_type() const noexcept { return partial_type(how_.dtype, how_.op.kind); }
  // Where hosts halve: the sum of two values, or of two sums, or the result of two sums of half
  // the hosts each. `out` may be one of the two if they are of its dtype.
  void add_values(std::byte* out, std::span<const std::byte* const, 2> in, std::size_t count) const;
  void add_sums(std::byte* out, std::span<const std::byte* const, 2> in, std::size_t count) const;
  void finish_sums(std::byte* out, std::span<const std::byte* const, 2> in,
                   std::size_t count) const;

 private:
  bool has_order() const noexcept { return PartialSums::has_order(how_.dtype, how_.op.kind); }
  ReduceOp without_end() const noexcept {
    return how_.op.kind == ReduceOp::avg ? ReduceOp(ReduceOp::sum) : how_.op;
  }
  bool is_reduced_by_team() const noexcept {  // the ranks' own op gives the value
    return !sums_.inputs && sums_.of(collective_.host()).size() == 1 && type_ == how_.dtype;
  }

  HostCollective& collective_;
  const Reducing how_;
  const PartialSums::Values& sums_;
  const DType type_;
};

}}}  // namespace c10d::v0::native
