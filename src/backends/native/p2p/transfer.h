// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "c10d/call.h"
#include "c10d/view.h"

namespace c10d { inline namespace v0 { namespace native {

// One send or recv, from its call to its end. The caller owns it; the queues hold pointers to it
// until it is done or withdrawn.
struct Transfer {
  bool is_send = false;
  bool done = false;
  int peer = 0;
  std::uint32_t tag = 0;
  DType dtype = DType::u8;
  std::byte* data = nullptr;  // of a send: only read
  std::size_t bytes = 0;
  std::size_t moved = 0;
  std::uint32_t id = 0;        // of an offer
  std::uint64_t remote = 0;    // of a recv of an offer: the address of the data in the sender
  bool exact = false;          // of a recv: whether a shorter message is a mismatch
  int source = -1;             // of a recv: the rank whose message it matched
  Transfer* before = nullptr;  // in the list of posted recvs
  Transfer* after = nullptr;
  const std::function<void(Transfer&)>* on_done = nullptr;  // of an async one

  // Of a recv that is done: `bytes` is the length of its message.
  Received received() const noexcept { return {source, bytes / size_of(dtype)}; }
  // Nobody may touch the transfer afterwards: on_done may reuse it.
  void finish() {
    done = true;
    if (on_done != nullptr) (*on_done)(*this);
  }
};

}}}  // namespace c10d::v0::native
