// SPDX-License-Identifier: BSD-3-Clause
// Any bytes as an IDX file, plain and packed: contents that fit their shape, or an error.
#include "examples/training/nn/idx.h"

#include <cstdlib>
#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  try {
    const std::vector<std::uint8_t> contents = nn::unpack_gzip(bytes, 1 << 20, "fuzz");
    if (contents.size() > 1 << 20) std::abort();
  } catch (const std::runtime_error&) {
  }
  try {
    const nn::Idx idx = nn::parse_idx(bytes, "fuzz");
    std::size_t count = 1;
    for (const std::uint32_t extent : idx.shape) count *= extent;
    if (count != idx.data.size()) std::abort();
  } catch (const std::runtime_error&) {
  }
  try {
    nn::unpack_idx(bytes, "fuzz");
  } catch (const std::runtime_error&) {
  }
  return 0;
}
