// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "c10d/spi/control.h"

namespace c10d { inline namespace v0 {

// A send: the constructor posts it, finish() blocks until the receiver has it.
class SendMessage {
 public:
  SendMessage(gloo::Context& context, const Send& op, std::uint32_t number);
  void finish(Deadline deadline);

 private:
  std::vector<std::byte> first_;
  std::unique_ptr<gloo::transport::UnboundBuffer> first_buffer_;
  std::unique_ptr<gloo::transport::UnboundBuffer> payload_buffer_;
};

// A recv: the constructor posts it in the order of (peer, tag), finish() blocks until the message
// has arrived.
class RecvMessage {
 public:
  RecvMessage(gloo::Context& context, const Recv& op);
  struct Result {
    Received received;
    std::string mismatch;  // not empty: what the two ends called
  };
  Result finish(Deadline deadline);

 private:
  gloo::Context& context_;
  Recv op_;
  std::vector<std::byte> first_;
  std::unique_ptr<gloo::transport::UnboundBuffer> first_buffer_;
};

}}  // namespace c10d::v0
