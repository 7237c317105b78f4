// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "c10d/spi/backend.h"
#include "src/base/members.h"

namespace c10d { inline namespace v0 {

// A failure in a group, caused by `rank`; -1: by no rank that is known.
inline Failure failure_in(const BackendContext& context, Code code, std::string message,
                          int rank = -1) {
  return {.code = code, .message = std::move(message), .rank = rank, .group = context.group};
}

// The same in a call of the group.
inline Failure in_call(const Call& call, Failure failure) {
  failure.op = to_string(kind_of(call.op));
  failure.sequence = call.sequence;
  return failure;
}
inline Failure failure_in(const BackendContext& context, const Call& call, Code code,
                          std::string message, int rank = -1) {
  return in_call(call, failure_in(context, code, std::move(message), rank));
}

// Of an async op, where a library that can only block has a thread wait for it.
inline Failure no_thread_for(const BackendContext& context, const Call& call, std::size_t limit,
                             std::string_view library) {
  return failure_in(context, call, Code::out_of_resources,
                    fmt::format("no thread for another async op: {} of one group wait on {} at "
                                "most, wait() for some; or raise ulimit -u",
                                limit, library),
                    context.rank);
}

}}  // namespace c10d::v0
