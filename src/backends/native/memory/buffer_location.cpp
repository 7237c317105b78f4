// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/memory/buffer_location.h"

#include <algorithm>
#include <utility>

namespace c10d { inline namespace v0 { namespace native {
namespace {

std::pair<std::uint32_t, std::uint32_t> segments_of(const BufferLocation& location) {
  const std::uint32_t input =
      location.input_segment != 0 ? location.input_segment : location.output_segment;
  const std::uint32_t output = location.output_segment != 0 ? location.output_segment : input;
  return std::minmax(input, output);
}

}  // namespace

AccessMode locate(SymmetricHeap& heap, int rank, const LocalBuffers& buffers,
                  BufferLocation& location) {
  location = {};
  location.input_address = reinterpret_cast<std::uintptr_t>(buffers.input);
  location.output_address = reinterpret_cast<std::uintptr_t>(buffers.output);
  if (heap.empty()) return AccessMode::addressed;
  bool all = buffers.input != nullptr || buffers.output != nullptr;
  const auto find = [&](const void* data, std::size_t bytes, auto& segment, auto& offset) {
    if (data == nullptr) return;
    const auto place = heap.find(data, bytes, rank);
    all &= place.has_value();
    segment = place ? place->segment : 0;
    offset = place ? place->offset : 0;
  };
  find(buffers.input, buffers.input_bytes, location.input_segment, location.input_offset);
  find(buffers.output, buffers.output_bytes, location.output_segment, location.output_offset);
  return all ? AccessMode::registered : AccessMode::addressed;
}

bool in_same_segments(const BufferLocation& one, const BufferLocation& other) noexcept {
  return segments_of(one) == segments_of(other);
}

}}}  // namespace c10d::v0::native
