// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "c10d/tensor.h"

namespace c10d { inline namespace v0 {

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
  // Where the ranks reach each other's memory: that of rank r begins at shares + r * share_bytes in
  // this process. Else null.
  std::byte* shares = nullptr;
  std::size_t share_bytes = 0;
};

// Typed memory from ProcessGroup::allocate, which may outlive the group. Move-only; one that was
// moved from is empty. Makes a Tensor wherever one is wanted.
template <Element T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Allocation allocation) noexcept : allocation_(std::move(allocation)) {}
  Buffer(Buffer&& other) noexcept : allocation_(std::exchange(other.allocation_, {})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    allocation_ = std::exchange(other.allocation_, {});
    return *this;
  }
  T* data() const noexcept { return static_cast<T*>(allocation_.data); }
  std::size_t size() const noexcept { return allocation_.bytes / sizeof(T); }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size(); }
  T& operator[](std::size_t i) const noexcept { return data()[i]; }
  // The memory of that rank, one of the group, from the same call of allocate(), size() elements in
  // this process; null where ranks do not reach each other's memory, on all ranks alike. A rank
  // sees there what its owner wrote before an op that ended for this rank after the owner had begun
  // it; what is read stays so until this rank begins an op that the owner waits for.
  T* of_rank(int rank) const noexcept {
    if (allocation_.shares == nullptr) return nullptr;
    return reinterpret_cast<T*>(allocation_.shares +
                                static_cast<std::size_t>(rank) * allocation_.share_bytes);
  }

 private:
  Allocation allocation_;
};

}}  // namespace c10d::v0
