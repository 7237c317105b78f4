// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "c10d/collective.h"

namespace c10d { inline namespace v0 {

// What precedes a message through a library that ends the process, or cuts the payload short, when
// the two ends differ: the receiver compares first. Small payloads travel with it.
struct MessageHeader {
  std::uint64_t count;
  std::uint32_t number;  // of the message from this sender to this receiver
  DType dtype;
  bool inlined;
};

// What is sent first: the header, with the payload when it is no larger than `most_inlined` bytes.
inline std::vector<std::byte> first_part_of(const Send& op, std::uint32_t number,
                                            std::size_t most_inlined) {
  const bool inlined = op.input.bytes() <= most_inlined;
  const MessageHeader header{op.input.count, number, op.input.dtype, inlined};
  std::vector<std::byte> part(sizeof header + (inlined ? op.input.bytes() : 0));
  std::memcpy(part.data(), &header, sizeof header);
  if (inlined && op.input.count > 0)
    std::memcpy(part.data() + sizeof header, op.input.data, op.input.bytes());
  return part;
}

// What the two ends called; empty when the message fits into the output.
inline std::string message_mismatch(DType dtype, std::uint64_t count, int source, int rank,
                                    const Recv& recv) {
  const View& output = recv.output;
  const bool fits = recv.exact ? count == output.count : count <= output.count;
  if (dtype == output.dtype && fits) return {};
  return fmt::format(
      "rank {} called send({} x {}, peer {}, tag {}), but rank {} called recv({} x {}, tag {}); {}",
      source, to_string(dtype), count, rank, recv.tag, rank, to_string(output.dtype), output.count,
      recv.tag,
      dtype != output.dtype ? "give both the same dtype"
      : recv.exact          ? "give both the same count"
                            : "the buffer of recv is too small for the message");
}

// Reads what was sent first into the output, which then is as long as the message; or says in
// `mismatch` why not. Returns the number of the message if its payload is still to come.
inline std::optional<std::uint32_t> read_first_part(const std::vector<std::byte>& part, int source,
                                                    int rank, Recv& recv, std::string& mismatch) {
  MessageHeader header;
  std::memcpy(&header, part.data(), sizeof header);
  mismatch = message_mismatch(header.dtype, header.count, source, rank, recv);
  if (!mismatch.empty()) return std::nullopt;
  recv.output.count = header.count;
  if (!header.inlined) return header.number;
  if (header.count > 0)
    std::memcpy(recv.output.data, part.data() + sizeof header, recv.output.bytes());
  return std::nullopt;
}

}}  // namespace c10d::v0
