// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
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

// What the two ends called; empty when that is the same.
inline std::string message_mismatch(const MessageHeader& header, int source, int rank,
                                    std::uint32_t tag, const Tensor& output) {
  if (header.dtype == output.dtype && header.count == output.count) return {};
  return fmt::format(
      "rank {} called send(to {}, tag {}, {} x {}), rank {} called recv(tag {}, {} x {})", source,
      rank, tag, to_string(header.dtype), header.count, rank, tag, to_string(output.dtype),
      output.count);
}

}}  // namespace c10d::v0
