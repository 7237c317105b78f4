// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "c10d/cuda.h"
#include "c10d/process_group.h"

namespace c10d::conformance {

// Memory for one case after the other: regions with guards around them, all filled with a pattern
// that is no op's result, so that what was not written, or written too far, is seen.
class Buffers {
 public:
  // From now on ops get memory of that GPU, of which this one is the copy of the host.
  void use_gpu(Device gpu);
  // Starts a case: takes the group's memory if it is there and large enough, else memory of its
  // own.
  void start(const Buffer<std::uint8_t>* allocated, std::size_t bytes);
  // A region of `bytes`, off 64-byte alignment by `shift`.
  std::byte* take(std::size_t bytes, std::size_t shift);
  // What start() must provide for `bytes` in `regions` regions.
  static std::size_t needed(std::size_t bytes, std::size_t regions);
  // A part of it as ops get it: on the GPU if there is one.
  View view(std::byte* data, std::size_t count, DType dtype) const;
  // The stream of the ops; null without a GPU.
  CudaStream stream() const { return stream_ ? static_cast<CudaStream>(*stream_) : nullptr; }
  // Before and after the ops of a case: all of it to the GPU and back. Nothing without one.
  void upload() const;
  void download() const;
  // Whether the guards are as they were.
  bool intact() const;
  // What memory holds that no op has written.
  static constexpr std::byte kPattern{0xa5};

 private:
  struct Range {
    std::size_t begin, end;
  };
  std::vector<std::byte> own_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
  std::vector<Range> guards_;
  Device gpu_{};
  Buffer<std::uint8_t> own_on_gpu_;
  std::uint8_t* base_on_gpu_ = nullptr;
  std::optional<cuda::Stream> stream_;
};

}  // namespace c10d::conformance
