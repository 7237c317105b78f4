// SPDX-License-Identifier: BSD-3-Clause
// What can arrive between two ranks of `native` once each has proved to be one: the first two bytes
// say in what pieces, and how long the block is that is awaited. Behind that it may be wrong, but
// not harm: nothing is written outside of the block, and no block ends that was not sent.
#include "src/backends/native/links/stream.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

using c10d::native::Stream;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t piece = data[0] + std::size_t{1}, bytes = data[1];
  std::vector<std::byte> block(bytes), other(bytes);
  Stream stream;
  stream.receive(block.data(), bytes, 1);
  stream.receive(other.data(), bytes, 2);
  std::size_t at = 2;
  while (at < size) {
    const auto pieces = stream.input();
    if (pieces.empty()) break;
    const std::size_t count = std::min({piece, size - at, pieces[0].iov_len});
    std::memcpy(pieces[0].iov_base, data + at, count);
    stream.read(count);
    at += count;
  }
  const std::size_t through = stream.received();
  if (bytes != 0 && through * (Stream::kHeaderBytes + bytes) > size) std::abort();
  if (through < 2 && stream.problem().empty() && stream.input().empty()) std::abort();
  return 0;
}
