// SPDX-License-Identifier: BSD-3-Clause
// Kernels that the stand-in for the driver has, and a stream that waits.
#pragma once

#include <cstring>
#include <span>

#include "c10d/cuda.h"
#include "tests/fake_gpu/same_as_real/kernels.h"

namespace c10d { inline namespace v0 {

inline std::span<const std::byte> test_kernels() {
  return std::as_bytes(std::span(same_as_real::kKernels, std::strlen(same_as_real::kKernels) + 1));
}

// Holds a stream until it is let go.
class Spin {
 public:
  explicit Spin(int device)
      : word_(cuda::device_allocate<std::uint32_t>(1, device)),
        own_stream_(device),
        kernel_(test_kernels(), "spin", device) {
    cuda::fill(word_.view(), 0);
    cuda::Event done(device);
    done.record();
    done.synchronize();
  }
  void hold(CudaStream stream) {
    constexpr unsigned long long kNanoseconds = 20'000'000'000;
    kernel_.launch({}, stream, word_.device_data(), kNanoseconds);
  }
  void let_go() {
    const std::uint32_t one = 1;
    cuda::copy(word_.view(), ConstView(&one, 1), own_stream_);
  }

 private:
  Buffer<std::uint32_t> word_;
  cuda::Stream own_stream_;
  cuda::Kernel kernel_;
};

}}  // namespace c10d::v0
