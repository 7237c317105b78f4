// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "c10d/spi/backend.h"
#include "src/backends/nccl/communicator.h"
#include "src/backends/nccl/library.h"

namespace c10d { inline namespace v0 { namespace nccl {

inline Support refused(std::string why) { return {.ok = false, .reason = std::move(why)}; }
inline Support composed(std::string how) { return {.ok = true, .composed = std::move(how)}; }

// Where the calls of one op go.
struct Target {
  const Communicator::Use& use;
  int rank, size;
  Stream stream;
  void* scratch;  // of a barrier: 4 bytes of the GPU
  bool captured;  // the stream is, into a graph

  // The communicator, as an argument of one call.
  Communicator::Use::InCall comm() const noexcept { return use.in_call(); }
};

// ncclGroupEnd, which makes the calls of the group.
inline Result end_group(const Communicator::Use& use) {
  const auto in_call = use.in_call();
  return api().group_end();
}
// Between ncclGroupStart and ncclGroupEnd, which is called whatever happens.
template <class Calls>
void in_group(const Target& target, const Calls& calls) {
  const Communicator::Use::InGroup group(target.use);
  check(api().group_start(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    end_group(target.use);
    throw;
  }
  check(end_group(target.use), "ncclGroupEnd");
}
// Nothing for views of no elements.
void send_to(const Target& target, const ConstView& view, int peer);
void recv_from(const Target& target, const View& view, int peer);
// On the GPU; nothing where both are the same.
void copy(const Target& target, void* to, const void* from, std::size_t bytes);
// Every rank sends a part to every rank: `to(r)` and `from(r)` are what this one exchanges with r,
// of no elements where it is nothing.
template <class To, class From>
void exchange(const Target& target, const To& to, const From& from) {
  const ConstView own = to(target.rank);
  copy(target, from(target.rank).data, own.data, own.bytes());
  in_group(target, [&] {
    for (int peer = 0; peer < target.size; ++peer) {
      if (peer == target.rank) continue;
      send_to(target, to(peer), peer);
      recv_from(target, from(peer), peer);
    }
  });
}

// What NCCL calls it; a sum for what is composed of one.
RedOp nccl_op(ReduceOp::Kind kind);

// Enqueues one op: its calls of NCCL, in one of NCCL's groups where it takes several, and copies of
// what a rank sends itself. The GPU is current. Throws DistError.
void enqueue(const Target& target, const Op& op);

}}}  // namespace c10d::v0::nccl
