// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "c10d/call.h"
#include "c10d/collective.h"
#include "src/backends/mpi/communicators.h"

namespace c10d { inline namespace v0 {

// What MPI gave of a message to probe(): its header, with a small payload. The recv takes it over.
struct ProbedMessage {
  int source;
  std::uint32_t tag;
  std::vector<std::byte> first;

  Received received() const noexcept;
  bool matches(int peer, std::uint32_t wanted) const noexcept {
    return tag == wanted && (peer == source || peer == kAnySource);
  }
  // The next one that a recv of this source and tag gets, if it is there.
  static std::optional<ProbedMessage> take(const Communicators& comms, int peer, std::uint32_t tag);
};

// A point-to-point message in progress: a header on one communicator, then the payload on another,
// so that the receiver can compare before it takes anything. Small payloads travel with the header.
// The header also numbers the message, because headers may be seen in another order than they were
// sent.
class Message {
 public:
  Message(const Communicators& comms, const Send& op, std::uint32_t number);
  Message(const Communicators& comms, const Recv& op);
  Message(const Communicators& comms, const Recv& op, ProbedMessage&& message);
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // True once it is done. Throws std::runtime_error with MPI's error.
  bool advance();
  // Whether MPI may still touch the message's memory or the caller's.
  bool in_progress() const noexcept;
  // Whether MPI is done with a message that was given up.
  bool is_done() noexcept;
  void cancel() noexcept;
  // Of a receiver: whether MPI takes the payload out of the sender's memory.
  bool reads_sender() const noexcept { return reads_sender_; }
  // Of a receiver, once it is done.
  Received received() const noexcept { return {source_, recv_.output.count}; }
  // Of a receiver: what the two ends called, when that differs. The payload is then
  // never taken.
  const std::string& mismatch() const noexcept { return mismatch_; }

 private:
  void take_payload();

  Communicators comms_;  // types made for this message are its own
  Recv recv_{};          // of a receiver
  bool receiving_header_ = false;
  bool reads_sender_ = false;
  int source_ = -1;
  std::string mismatch_;
  std::vector<std::byte> first_;
  MPI_Request header_request_ = MPI_REQUEST_NULL;
  MPI_Request payload_request_ = MPI_REQUEST_NULL;
};

}}  // namespace c10d::v0
