// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "c10d/parallel/fsdp.h"

namespace c10d::inline v0::parallel {

// The engine's memory, counted. Zeroed.
class CountedMemory {
 public:
  std::byte* take(std::size_t bytes, std::size_t FsdpMemory::*use) {
    const std::size_t rounded = (bytes + kCacheLine) / kCacheLine * kCacheLine;  // never none
    void* const memory = std::aligned_alloc(kCacheLine, rounded);
    if (!memory) throw std::bad_alloc();
    blocks_.emplace_back(memory);
    std::memset(memory, 0, rounded);
    used_.*use += bytes;
    return static_cast<std::byte*>(memory);
  }
  float* take_floats(std::size_t count, std::size_t FsdpMemory::*use) {
    return reinterpret_cast<float*>(take(count * sizeof(float), use));
  }
  const FsdpMemory& used() const noexcept { return used_; }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  static constexpr std::size_t kCacheLine = 64;
  std::vector<std::unique_ptr<void, Free>> blocks_;
  FsdpMemory used_;
};

}  // namespace c10d::inline v0::parallel
