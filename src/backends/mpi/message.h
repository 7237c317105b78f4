// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "c10d/collective.h"
#include "src/backends/mpi/communicators.h"

namespace c10d { inline namespace v0 {

// A point-to-point message in progress: a header on one communicator, then the payload on another,
// so that the receiver can compare before it takes anything. Small payloads travel with the header.
// The header also numbers the message, because headers may be seen in another order than they were
// sent.
class Message {
 public:
  Message(const Channel& channel, const Send& op, std::uint32_t number);
  Message(const Channel& channel, const Recv& op);
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // True once it is done. Throws std::runtime_error with MPI's error.
  bool advance();
  // Whether MPI may still touch the message's memory or the caller's.
  bool in_progress() const noexcept;
  // Of one that was given up: whether MPI is done with it.
  bool over() noexcept;
  void cancel() noexcept;
  // Of a receiver: whether MPI takes the payload out of the sender's memory.
  bool reads_sender() const noexcept { return reads_sender_; }
  int source() const noexcept { return source_; }
  // Of a receiver: what the two ends called, when that differs. The payload is then
  // never taken.
  const std::string& mismatch() const noexcept { return mismatch_; }

 private:
  void take_payload();

  Channel channel_;  // types made for this message are its own
  Tensor output_;    // of a receiver
  std::uint32_t tag_;
  bool receiving_header_ = false;
  bool reads_sender_ = false;
  int source_ = -1;
  std::string mismatch_;
  std::vector<std::byte> first_;
  MPI_Request header_request_ = MPI_REQUEST_NULL;
  MPI_Request payload_request_ = MPI_REQUEST_NULL;
};

}}  // namespace c10d::v0
