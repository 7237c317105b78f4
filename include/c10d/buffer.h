// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "c10d/view.h"

namespace c10d { inline namespace v0 {

// Memory from a backend, untyped: Buffer is what users hold. It is a symmetric heap (OpenSHMEM,
// NVSHMEM) where the backend has one: every rank can access the memory of all ranks. Elsewhere it
// is plain memory. It is aligned to 4096 bytes, zeroed, and freed with the last copy of `owner`.
// Its pages come from the NUMA node of the rank that allocates.
//
// Peers write into the output of an op, and only while that op runs. An op that fails returns or
// completes once no peer will write any more, with one exception: a peer that has not run for 100
// ms by then (SIGSTOP, a debugger, a frozen container) may finish the block of at most 64 KiB of
// that output that it was writing, when it continues. No later op of the group writes anything.
// After the memory is freed, such a write reaches nothing of this process.
struct Allocation {
  void* data = nullptr;         // this rank's memory
  std::size_t bytes = 0;        // size of this rank's memory
  std::shared_ptr<void> owner;  // keeps the memory
  // Where ranks can access each other's memory: the memory of rank r begins in this process at
  // peer_base + r * peer_stride_bytes. Else null.
  std::byte* peer_base = nullptr;
  std::size_t peer_stride_bytes = 0;  // distance between the memory of two ranks
};

// Typed memory from ProcessGroup::allocate(), of size() elements on every rank. It converts to
// View and may outlive the group. Move-only; a buffer that was moved from is empty.
template <Element T>
class Buffer {
 public:
  // An empty buffer.
  Buffer() = default;
  // A buffer of all whole elements in that memory.
  explicit Buffer(Allocation allocation) noexcept : allocation_(std::move(allocation)) {}
  // Takes over the memory of `other`, which is empty afterwards.
  Buffer(Buffer&& other) noexcept : allocation_(std::exchange(other.allocation_, {})) {}
  // Frees the memory that was here and takes over that of `other`.
  Buffer& operator=(Buffer&& other) noexcept {
    allocation_ = std::exchange(other.allocation_, {});
    return *this;
  }
  // The first element; null when empty.
  T* data() const noexcept { return static_cast<T*>(allocation_.data); }
  // Number of elements.
  std::size_t size() const noexcept { return allocation_.bytes / sizeof(T); }
  // As data().
  T* begin() const noexcept { return data(); }
  // Behind the last element.
  T* end() const noexcept { return data() + size(); }
  // Element i. Does not check i.
  T& operator[](std::size_t i) const noexcept { return data()[i]; }
  // The memory of `rank` from the same call of allocate(): size() elements, mapped into this
  // process. Null on every rank where ranks cannot access each other's memory. `rank` must be in
  // the group; it is not checked.
  // Writes by the owner before it starts an op are visible here once that op has completed on this
  // rank. They stay unchanged until this rank starts the next op that synchronises with the owner.
  T* peer_data(int rank) const noexcept {
    if (allocation_.peer_base == nullptr) return nullptr;
    return reinterpret_cast<T*>(allocation_.peer_base +
                                static_cast<std::size_t>(rank) * allocation_.peer_stride_bytes);
  }

 private:
  Allocation allocation_;
};

}}  // namespace c10d::v0
