// SPDX-License-Identifier: BSD-3-Clause
// supports(): data that says before the call what the call will do.
#include <array>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

class Supports : public OnBackend {};

TEST_P(Supports, WhatItDeniesIsUnsupportedWithThatReasonAndTheGroupGoesOn) {
  run(2, [](ProcessGroup& group) {
    int denied = 0;
    std::array<std::byte, 16> memory{};
    for (int d = 0; d < kDTypeCount; ++d) {
      for (int k = 0; k < kReduceOpCount; ++k) {
        const auto dtype = static_cast<DType>(d);
        const auto kind = static_cast<ReduceOp::Kind>(k);
        const Support support =
            group.supports({.op = OpKind::all_reduce, .dtype = dtype, .reduce_op = kind});
        if (support) continue;
        ++denied;
        EXPECT_FALSE(support.reason.empty());
        const View view(memory.data(), 1, dtype);
        const Failure failure = failure_of([&] { group.all_reduce(view, kind); });
        EXPECT_EQ(failure.code, Code::unsupported);
        EXPECT_EQ(reason_of(failure.code), Reason::unsupported);
        EXPECT_NE(failure.message.find(support.reason), std::string::npos) << failure.message;
        EXPECT_NE(failure.message.find(to_string(dtype)), std::string::npos) << failure.message;
      }
    }
    EXPECT_GT(denied, 0) << "bitwise ops on floats make no sense anywhere";
    EXPECT_EQ(group.failure(), nullptr);
    expect_usable(group);
  });
}

TEST_P(Supports, WhatMakesNoSenseIsDeniedOnEveryBackend) {
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int k = 0; k < kReduceOpCount; ++k) {
      const auto dtype = static_cast<DType>(d);
      const auto kind = static_cast<ReduceOp::Kind>(k);
      for (const OpTraits& op : kOpTraits) {
        if (why_unsupported(op.kind, kind, dtype).empty()) continue;
        EXPECT_FALSE(
            backend_supports(GetParam(), {.op = op.kind, .dtype = dtype, .reduce_op = kind}))
            << to_string(kind) << " of " << to_string(dtype);
      }
    }
  }
}

TEST_P(Supports, AnswersTheSameWithoutAGroup) {
  run(1, [](ProcessGroup& group) {
    for (int op = 0; op < kOpCount; ++op) {
      for (int d = 0; d < kDTypeCount; ++d) {
        const Query query{.op = static_cast<OpKind>(op), .dtype = static_cast<DType>(d)};
        const Support with = group.supports(query);
        const Support without = backend_supports(group.backend(), query);
        EXPECT_EQ(with.ok, without.ok);
        EXPECT_EQ(with.reason, without.reason);
        EXPECT_EQ(with.composed, without.composed);
      }
    }
  });
}

TEST_P(Supports, CudaMemoryIsUnsupportedOnACpuBackend) {
  run(2, [](ProcessGroup& group) {
    std::array<float, 2> data{};
    View view(data);
    view.device = {DeviceType::cuda, 0};
    const Query query{.op = OpKind::all_reduce, .device = DeviceType::cuda};
    if (!group.supports(query)) {
      EXPECT_EQ(code_of([&] { group.all_reduce(view); }), Code::unsupported);
    }
    expect_usable(group);
  });
}

C10D_ON_EACH_BACKEND(Supports);

TEST(Names, OfEnumsGoBothWays) {
  for (int i = 0; i < kDTypeCount; ++i)
    EXPECT_EQ(dtype_from_string(to_string(static_cast<DType>(i))), static_cast<DType>(i));
  for (int i = 0; i < kReduceOpCount; ++i)
    EXPECT_EQ(reduce_op_from_string(to_string(static_cast<ReduceOp::Kind>(i))), i);
  for (int i = 0; i < kOpCount; ++i)
    EXPECT_EQ(op_from_string(to_string(static_cast<OpKind>(i))), static_cast<OpKind>(i));
}

// error.h: what() holds every field on one line.
TEST(Errors, HaveEveryFieldInOneLine) {
  const DistBackendError error({.code = Code::mismatch,
                                .message = "why",
                                .rank = 3,
                                .host = "hosty",
                                .pid = 1234,
                                .group = "world/x",
                                .op = "all_gather",
                                .sequence = 77});
  const std::string text = error.what();
  for (const char* part :
       {"mismatch", "why", "rank 3", "hosty", "1234", "world/x", "all_gather", "77"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

}}  // namespace c10d::contract
