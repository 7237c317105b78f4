// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/mutex.h"
#include "src/net/shared_memory.h"

namespace c10d { inline namespace v0 { namespace native {

// The registered memory of a group: segments with one equal share per rank, mapped by all ranks.
class SymmetricHeap {
 public:
  struct Place {
    std::uint32_t segment = 0;  // from 1 on; the same number on every rank
    std::uint64_t offset = 0;   // in the share of the rank that owns it
  };

  // Takes a segment in; `number`, from 1 on, is the same on every rank.
  void add(std::uint32_t number, const std::shared_ptr<SharedMapping>& mapping,
           std::size_t share_bytes);
  bool empty() const noexcept { return known_.load(std::memory_order_relaxed) == 0; }
  // Where [data, data + bytes) lies in the share of `rank`, if it does.
  std::optional<Place> find(const void* data, std::size_t bytes, int rank);
  // The same place of another rank. The segment must be alive: it is while this rank has memory in
  // it that an op uses.
  std::byte* at(std::uint32_t segment, std::uint64_t offset, int rank);

 private:
  struct Segment {
    std::uint32_t number;
    std::weak_ptr<SharedMapping> mapping;
    std::byte* base;
    std::size_t share_bytes;
  };
  Mutex mutex_;
  std::vector<Segment> segments_ C10D_GUARDED_BY(mutex_);
  std::atomic<std::size_t> known_{0};
};

}}}  // namespace c10d::v0::native
