// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "c10d/export.h"
#include "c10d/view.h"

namespace c10d { inline namespace v0 {

// Memory from a backend, untyped: Buffer is what users hold. It is a symmetric heap (OpenSHMEM,
// NVSHMEM) where the backend has one: every rank can access the memory of all ranks. Elsewhere it
// is plain memory. It is aligned to 4096 bytes, on a GPU to 256, zeroed, and freed with the last
// copy of `owner`; on a GPU that waits for all work there.
// Memory of the host comes from the NUMA node of the rank that allocates.
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
  Device device{};                    // where the memory lies
};

namespace detail {
// Throws InvalidArgument: host code would read memory of a GPU.
[[noreturn]] C10D_API void refuse_host_access(Device device);
}  // namespace detail

// Typed memory from ProcessGroup::allocate(), of size() elements on every rank, or from
// cuda::device_allocate(). It converts to View and may outlive the group. Move-only; a buffer that
// was moved from is empty.
//
// Host code cannot read memory of a GPU: there data(), begin(), end() and [] throw InvalidArgument.
// Ops and copy() take the buffer itself, and kernels its device_data().
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
  // The first element, for host code; null when empty.
  T* data() const {
    if (allocation_.device.type != DeviceType::cpu) detail::refuse_host_access(allocation_.device);
    return device_data();
  }
  // Its address on the device where the memory lies.
  T* device_data() const noexcept { return static_cast<T*>(allocation_.data); }
  // Where the memory lies.
  Device device() const noexcept { return allocation_.device; }
  // A view of all elements.
  View view() const noexcept {
    return {allocation_.data, size() * elements_per<T>, dtype_of<T>, allocation_.device};
  }
  // Number of elements.
  std::size_t size() const noexcept { return allocation_.bytes / sizeof(T); }
  // As data().
  T* begin() const { return data(); }
  // Behind the last element.
  T* end() const { return data() + size(); }
  // Element i. Does not check i.
  T& operator[](std::size_t i) const { return data()[i]; }
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
