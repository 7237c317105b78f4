// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/message.h"

#include <cstring>
#include <utility>

#include "src/backends/common/message_header.h"
#include "src/backends/mpi/runtime.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kInlineBytes = 1024;

// Any tag that MPI must accept will do: it only has to differ among the messages between two ranks
// that are in flight.
int payload_tag(std::uint32_t number) { return static_cast<int>(number % 32768); }

}  // namespace

Message::Message(const Communicators& comms, const Send& op, std::uint32_t number)
    : comms_(comms), first_(first_part_of(op, number, kInlineBytes)) {
  const auto turn = mpi_turn();
  check_mpi(MPI_Isend(first_.data(), static_cast<int>(first_.size()), MPI_BYTE, op.peer,
                      static_cast<int>(op.tag), comms_.headers, &header_request_));
  if (op.input.bytes() <= kInlineBytes) return;
  const auto [count, type] = comms_.elements(op.input.count, op.input.dtype);
  check_mpi(MPI_Isend(op.input.data, count, type, op.peer, payload_tag(number), comms_.payloads,
                      &payload_request_));
  comms_.free_types();
}

Received ProbedMessage::received() const noexcept {
  MessageHeader header;
  std::memcpy(&header, first.data(), sizeof header);
  return {source, header.count};
}

std::optional<ProbedMessage> ProbedMessage::take(const Communicators& comms, int peer,
                                                 std::uint32_t tag) {
  const auto turn = mpi_turn();
  int found = 0, bytes = 0;
  MPI_Message message;
  MPI_Status status;
  check_mpi(MPI_Improbe(peer == kAnySource ? MPI_ANY_SOURCE : peer, static_cast<int>(tag),
                        comms.headers, &found, &message, &status));
  if (!found) return std::nullopt;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes));
  ProbedMessage probed{status.MPI_SOURCE, tag,
                       std::vector<std::byte>(static_cast<std::size_t>(bytes))};
  check_mpi(MPI_Mrecv(probed.first.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE));
  return probed;
}

Message::Message(const Communicators& comms, const Recv& op, ProbedMessage&& message)
    : comms_(comms),
      recv_(op),
      receiving_header_(true),
      source_(message.source),
      first_(std::move(message.first)) {
  const auto turn = mpi_turn();
  take_payload();
}

Message::Message(const Communicators& comms, const Recv& op)
    : comms_(comms),
      recv_(op),
      receiving_header_(true),
      first_(sizeof(MessageHeader) + kInlineBytes) {
  const int peer = op.peer == kAnySource ? MPI_ANY_SOURCE : op.peer;
  const auto turn = mpi_turn();
  check_mpi(MPI_Irecv(first_.data(), static_cast<int>(first_.size()), MPI_BYTE, peer,
                      static_cast<int>(op.tag), comms_.headers, &header_request_));
}

bool Message::advance() {
  const auto turn = mpi_turn();
  if (header_request_ != MPI_REQUEST_NULL) {
    int done = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&header_request_, &done, &status));
    if (!done) return false;
    if (receiving_header_) {
      source_ = status.MPI_SOURCE;
      take_payload();
    }
  }
  if (payload_request_ == MPI_REQUEST_NULL) return true;
  int done = 0;
  check_mpi(MPI_Test(&payload_request_, &done, MPI_STATUS_IGNORE));
  return done;
}

void Message::take_payload() {
  const auto number = read_first_part(first_, source_, comms_.rank, recv_, mismatch_);
  if (!number) return;
  const auto [count, type] = comms_.elements(recv_.output.count, recv_.output.dtype);
  reads_sender_ = true;
  check_mpi(MPI_Irecv(recv_.output.data, count, type, source_, payload_tag(*number),
                      comms_.payloads, &payload_request_));
  comms_.free_types();
}

bool Message::in_progress() const noexcept {
  return header_request_ != MPI_REQUEST_NULL || payload_request_ != MPI_REQUEST_NULL;
}

bool Message::is_done() noexcept {
  const auto turn = mpi_turn();
  for (MPI_Request* request : {&header_request_, &payload_request_}) {
    int done = 0;
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
  }
  return !in_progress();
}

void Message::cancel() noexcept {
  const auto turn = mpi_turn();
  for (MPI_Request* request : {&header_request_, &payload_request_}) {
    if (!receiving_header_ || *request == MPI_REQUEST_NULL) continue;
    int done = 0;
    if (MPI_Cancel(request) == MPI_SUCCESS) MPI_Test(request, &done, MPI_STATUS_IGNORE);
  }
}

}}  // namespace c10d::v0
