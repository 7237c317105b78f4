// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "c10d/tensor.h"

namespace c10d::inline v0 {

// Memory that every rank of a group can reach directly where the backend has such; else plain
// memory, aligned to 4096 bytes and zeroed. Its pages come from the NUMA node of the rank that
// allocates. Freed with the last copy.
//
// Peers write into the output of an op, and only while it runs. When an op fails, it returns or
// completes once no peer is about to write any more, with one exception: a peer that has not run
// for 100 ms by then (SIGSTOP, a debugger, a frozen container) may end the block of at most 64 KiB
// of that output that it was writing, when it goes on. No later op of the group writes anything.
// After the memory is freed, what such a peer writes reaches nothing of this process.
struct Allocation {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;
};

// Typed memory from ProcessGroup::allocate. Move-only; makes a Tensor wherever one is wanted.
template <Element T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Allocation allocation) : allocation_(std::move(allocation)) {}
  T* data() const noexcept { return static_cast<T*>(allocation_.data); }
  std::size_t size() const noexcept { return allocation_.bytes / sizeof(T); }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size(); }
  T& operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  Allocation allocation_;
};

}  // namespace c10d::inline v0
