// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/memory/symmetric_heap.h"

#include "src/base/check.h"

namespace c10d { inline namespace v0 { namespace native {

void SymmetricHeap::add(std::uint32_t number, const std::shared_ptr<SharedMapping>& mapping,
                        std::size_t share_bytes) {
  MutexLock lock(mutex_);
  std::erase_if(segments_, [](const Segment& segment) { return segment.mapping.expired(); });
  segments_.push_back({number, mapping, mapping->data(), share_bytes});
  known_.store(segments_.size(), std::memory_order_relaxed);
}

std::optional<SymmetricHeap::Place> SymmetricHeap::find(const void* data, std::size_t bytes,
                                                        int rank) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  MutexLock lock(mutex_);
  for (const Segment& segment : segments_) {
    const std::uintptr_t share = reinterpret_cast<std::uintptr_t>(segment.base) +
                                 static_cast<std::size_t>(rank) * segment.share_bytes;
    if (address < share || address - share > segment.share_bytes) continue;
    // Other memory may have come to lie where a freed segment was.
    if (bytes > segment.share_bytes - (address - share) || segment.mapping.expired()) continue;
    return Place{segment.number, address - share};
  }
  return {};
}

std::byte* SymmetricHeap::at(std::uint32_t segment, std::uint64_t offset, int rank) {
  MutexLock lock(mutex_);
  for (const Segment& known : segments_)
    if (known.number == segment)
      return known.base + static_cast<std::size_t>(rank) * known.share_bytes + offset;
  C10D_CHECK(!"a registered segment that is in use is gone");
  return nullptr;
}

}}}  // namespace c10d::v0::native
