// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/gloo/point_to_point.h"

#include <gloo/types.h>

#include <cstring>

#include "src/backends/common/message_header.h"
#include "src/backends/gloo/revocable_context.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::uint8_t kHeaderPrefix = 0x21;  // of slots; Gloo's own collectives use 1 to 8
constexpr std::uint8_t kPayloadPrefix = 0x22;
constexpr std::size_t kInlineBytes = 4096;

}  // namespace

SendMessage::SendMessage(gloo::Context& mesh, const Send& op, std::uint32_t number)
    : first_(first_part_of(op, number, kInlineBytes)),
      first_buffer_(mesh.createUnboundBuffer(first_.data(), first_.size())) {
  first_buffer_->send(op.peer, gloo::Slot::build(kHeaderPrefix, op.tag));
  if (op.input.bytes() <= kInlineBytes) return;
  payload_buffer_ = mesh.createUnboundBuffer(const_cast<void*>(op.input.data), op.input.bytes());
  payload_buffer_->send(op.peer, gloo::Slot::build(kPayloadPrefix, number));
}

void SendMessage::finish(Deadline deadline) {
  first_buffer_->waitSend(time_until(deadline));
  if (payload_buffer_) payload_buffer_->waitSend(time_until(deadline));
}

RecvMessage::RecvMessage(gloo::Context& mesh, const Recv& op)
    : mesh_(mesh),
      op_(op),
      first_(sizeof(MessageHeader) + kInlineBytes),
      first_buffer_(mesh.createUnboundBuffer(first_.data(), first_.size())) {
  const std::uint64_t slot = gloo::Slot::build(kHeaderPrefix, op.tag);
  if (op.peer != kAnySource) {
    first_buffer_->recv(op.peer, slot);
    return;
  }
  std::vector<int> others;
  for (int peer = 0; peer < mesh.size; ++peer)
    if (peer != mesh.rank) others.push_back(peer);
  first_buffer_->recv(others, slot);
}

RecvMessage::Result RecvMessage::finish(Deadline deadline) {
  Result result;
  first_buffer_->waitRecv(&result.source, time_until(deadline));
  MessageHeader header;
  std::memcpy(&header, first_.data(), sizeof(header));
  result.mismatch = message_mismatch(header, result.source, mesh_.rank, op_.tag, op_.output);
  if (!result.mismatch.empty()) return result;
  if (header.inlined) {
    if (header.count > 0)
      std::memcpy(op_.output.data, first_.data() + sizeof(header), op_.output.bytes());
    return result;
  }
  const auto payload = mesh_.createUnboundBuffer(op_.output.data, op_.output.bytes());
  payload->recv(result.source, gloo::Slot::build(kPayloadPrefix, header.number));
  payload->waitRecv(time_until(deadline));
  return result;
}

}}  // namespace c10d::v0
