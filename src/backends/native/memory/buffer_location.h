// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backends/native/memory/layout.h"
#include "src/backends/native/memory/symmetric_heap.h"

namespace c10d { inline namespace v0 { namespace native {

// Memory of this rank that its peers may read or write; null where it has none.
struct LocalBuffers {
  const void* input = nullptr;
  std::size_t input_bytes = 0;
  const void* output = nullptr;
  std::size_t output_bytes = 0;
};

// What an Entry says of its rank's data: Entry::registered.
enum class AccessMode : std::uint32_t {
  staged,      // in its staging, or on the way there
  registered,  // all that others may touch lies in the heap: see BufferLocation
  addressed    // at addresses in the rank's own memory
};

// Where input and output lie: the payload of an Entry that is not `staged`. Segment 0: not in the
// heap.
struct BufferLocation {
  std::uint64_t input_offset;
  std::uint64_t output_offset;
  std::uint32_t input_segment;
  std::uint32_t output_segment;
  std::uint64_t input_address;
  std::uint64_t output_address;
};
static_assert(sizeof(BufferLocation) <= kInlineBytes);

// Fills in `location`; returns `registered` if all buffers of `rank` lie in the heap.
AccessMode locate(SymmetricHeap& heap, int rank, const LocalBuffers& buffers,
                  BufferLocation& location);
bool in_same_segments(const BufferLocation& one, const BufferLocation& other) noexcept;

}}}  // namespace c10d::v0::native
