// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "c10d/control.h"
#include "c10d/work.h"

namespace c10d::inline v0::native {

// A call that outlives launch(), with the spans that the caller's do not, and its Work.
class OwnedCall {
 public:
  explicit OwnedCall(const Call& from)
      : op_(from.op), call_{op_,           from.sequence, from.signature,
                            from.deadline, from.async,    from.record} {
    std::visit([this](auto& any) { keep(any); }, op_);
  }
  OwnedCall(const OwnedCall&) = delete;
  OwnedCall& operator=(const OwnedCall&) = delete;

  const Call& call() const noexcept { return call_; }
  const WorkSource& source() const noexcept { return source_; }

 private:
  template <class T>
  void keep(T& op) {
    if constexpr (requires { op.counts; }) {
      op.counts = copy(op.counts, counts_);
    } else if constexpr (requires { op.input_counts; }) {
      op.input_counts = copy(op.input_counts, counts_);
      op.output_counts = copy(op.output_counts, more_counts_);
    }
  }
  static std::span<const std::size_t> copy(std::span<const std::size_t> from,
                                           std::vector<std::size_t>& to) {
    to.assign(from.begin(), from.end());
    return to;
  }

  Op op_;
  std::vector<std::size_t> counts_, more_counts_;
  Call call_;
  WorkSource source_;
};

}  // namespace c10d::inline v0::native
