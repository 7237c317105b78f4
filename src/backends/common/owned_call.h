// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "c10d/spi/control.h"

namespace c10d { inline namespace v0 {

// Replaces the counts that an op's spans show by what `keep` returns for them.
template <class T, class Keep>
void keep_counts(T& op, Keep keep) {
  if constexpr (requires { op.counts; }) {
    op.counts = keep(op.counts);
  } else if constexpr (requires { op.output_counts; }) {
    op.output_counts = keep(op.output_counts);
    op.input_counts = keep(op.input_counts);
  }
}

// A Call that outlives Backend::launch(): owns the op and its counts.
class OwnedCall {
 public:
  explicit OwnedCall(const Call& call)
      : op_(call.op), call_{op_,         call.sequence, call.signature, call.deadline, call.async,
                            call.record, call.device,   call.stream,    call.captured} {
    auto* here = counts_.data();
    const auto keep = [&](std::span<const std::size_t> counts) -> std::span<const std::size_t> {
      here->assign(counts.begin(), counts.end());
      return *here++;
    };
    std::visit([&](auto& op) { keep_counts(op, keep); }, op_);
  }
  OwnedCall(const OwnedCall&) = delete;
  OwnedCall& operator=(const OwnedCall&) = delete;

  const Call& call() const noexcept { return call_; }

 private:
  Op op_;
  std::array<std::vector<std::size_t>, 2> counts_;
  Call call_;
};

}}  // namespace c10d::v0
