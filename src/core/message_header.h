// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "c10d/collective.h"

namespace c10d::inline v0 {

// What precedes a message through a library that ends the process, or cuts the payload short, when
// the two ends differ: the receiver compares first. Small payloads travel with it.
struct MessageHeader {
  std::uint64_t count;
  std::uint32_t number;  // of the message from this sender to this receiver
  DType dtype;
  bool inlined;
};

// What the two ends called; empty when that is the same.
inline std::string message_mismatch(const MessageHeader& header, int source, int rank,
                                    std::uint32_t tag, const Tensor& output) {
  if (header.dtype == output.dtype && header.count == output.count) return {};
  return fmt::format(
      "rank {} called send(to {}, tag {}, {} x {}), rank {} called recv(tag {}, {} x {})", source,
      rank, tag, to_string(header.dtype), header.count, rank, tag, to_string(output.dtype),
      output.count);
}

}  // namespace c10d::inline v0
