// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "c10d/control.h"

namespace c10d { inline namespace v0 {

// A Call that outlives Backend::launch(): owns the op and the counts that the op's spans show.
class OwnedCall {
 public:
  explicit OwnedCall(const Call& call)
      : op_(call.op), call_{op_,           call.sequence, call.signature,
                            call.deadline, call.async,    call.record} {
    std::visit([this](auto& op) { own(op); }, op_);
  }
  OwnedCall(const OwnedCall&) = delete;
  OwnedCall& operator=(const OwnedCall&) = delete;

  const Call& call() const noexcept { return call_; }

 private:
  template <class T>
  void own(T& op) {
    if constexpr (requires { op.counts; }) {
      op.counts = keep(counts_, op.counts);
    } else if constexpr (requires { op.output_counts; }) {
      op.output_counts = keep(counts_, op.output_counts);
      op.input_counts = keep(input_counts_, op.input_counts);
    }
  }
  static std::span<const std::size_t> keep(std::vector<std::size_t>& here,
                                           std::span<const std::size_t> counts) {
    here.assign(counts.begin(), counts.end());
    return here;
  }

  Op op_;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> input_counts_;
  Call call_;
};

}}  // namespace c10d::v0
