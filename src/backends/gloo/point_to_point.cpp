// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/gloo/point_to_point.h"

#include <gloo/types.h>

#include "src/backends/common/message_header.h"
#include "src/backends/gloo/revocable_context.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::uint8_t kHeaderPrefix = 0x21;  // of slots; Gloo's own collectives use 1 to 8
constexpr std::uint8_t kPayloadPrefix = 0x22;
constexpr std::size_t kInlineBytes = 4096;

}  // namespace

SendMessage::SendMessage(gloo::Context& context, const Send& op, std::uint32_t number)
    : first_(first_part_of(op, number, kInlineBytes)),
      first_buffer_(context.createUnboundBuffer(first_.data(), first_.size())) {
  first_buffer_->send(op.peer, gloo::Slot::build(kHeaderPrefix, op.tag));
  if (op.input.bytes() <= kInlineBytes) return;
  payload_buffer_ = context.createUnboundBuffer(const_cast<void*>(op.input.data), op.input.bytes());
  payload_buffer_->send(op.peer, gloo::Slot::build(kPayloadPrefix, number));
}

void SendMessage::finish(Deadline deadline) {
  first_buffer_->waitSend(time_until(deadline));
  if (payload_buffer_) payload_buffer_->waitSend(time_until(deadline));
}

RecvMessage::RecvMessage(gloo::Context& context, const Recv& op)
    : context_(context),
      op_(op),
      first_(sizeof(MessageHeader) + kInlineBytes),
      first_buffer_(context.createUnboundBuffer(first_.data(), first_.size())) {
  const std::uint64_t slot = gloo::Slot::build(kHeaderPrefix, op.tag);
  if (op.peer != kAnySource) {
    first_buffer_->recv(op.peer, slot);
    return;
  }
  std::vector<int> others;
  for (int peer = 0; peer < context.size; ++peer)
    if (peer != context.rank) others.push_back(peer);
  first_buffer_->recv(others, slot);
}

RecvMessage::Result RecvMessage::finish(Deadline deadline) {
  Result result;
  int& source = result.received.source;
  first_buffer_->waitRecv(&source, time_until(deadline));
  const auto number = read_first_part(first_, source, context_.rank, op_, result.mismatch);
  result.received.count = op_.output.count;
  if (!number) return result;
  const auto payload = context_.createUnboundBuffer(op_.output.data, op_.output.bytes());
  payload->recv(source, gloo::Slot::build(kPayloadPrefix, *number));
  payload->waitRecv(time_until(deadline));
  return result;
}

}}  // namespace c10d::v0
