// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "c10d/parallel/fsdp.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Memory that is counted by its use. Zeroed, aligned to cache lines, given back at the end.
class CountedMemory {
 public:
  std::byte* take(std::size_t bytes, std::size_t FsdpMemory::*use) {
    used_.*use += bytes;
    return blocks_.emplace_back(bytes / sizeof(Line) + 1).data()->bytes;
  }
  float* take_floats(std::size_t count, std::size_t FsdpMemory::*use) {
    return reinterpret_cast<float*>(take(count * sizeof(float), use));
  }
  const FsdpMemory& used() const noexcept { return used_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<std::vector<Line>> blocks_;
  FsdpMemory used_;
};

}}}  // namespace c10d::v0::parallel
