// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "bench/measure/gpu.h"
#include "c10d/buffer.h"
#include "c10d/view.h"

namespace c10d::bench {

// Memory for buffers: page-aligned, with pages that are all there from the start, so that no timed
// copy faults; or of a GPU.
class Arena {
 public:
  // Throws DistBackendError (out_of_resources).
  explicit Arena(std::size_t bytes);
  // On the GPU of the seat, which outlives this.
  Arena(std::size_t bytes, const GpuSeat& seat);
  // What a backend gave, on the GPU of the seat if there is one.
  explicit Arena(Buffer<std::uint8_t> memory, const GpuSeat* seat = nullptr)
      : bytes_(memory.size()),
        data_(memory.device_data()),
        registered_(std::move(memory)),
        seat_(seat) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // Null: memory of the host.
  const GpuSeat* seat() const noexcept { return seat_; }
  // Elements that begin `offset` bytes behind its start.
  View view(std::uint64_t offset, std::uint64_t count, DType dtype) const noexcept {
    return {static_cast<std::byte*>(data_) + offset, count, dtype,
            seat_ == nullptr ? Device{} : seat_->device};
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
  Buffer<std::uint8_t> registered_;
  const GpuSeat* seat_ = nullptr;
  Allocation on_gpu_;
};

}  // namespace c10d::bench
