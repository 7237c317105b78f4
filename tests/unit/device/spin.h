// SPDX-License-Identifier: BSD-3-Clause
// Kernels that the stand-in for the driver has, and a stream that waits.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "c10d/cuda.h"
#include "src/device/gpu.h"
#include "tests/fake_gpu/same_as_real/kernels.h"

namespace c10d { inline namespace v0 {

inline std::span<const std::byte> test_kernels() {
  return std::as_bytes(std::span(same_as_real::kKernels, std::strlen(same_as_real::kKernels) + 1));
}

// Holds a stream until it is let go.
class Spin {
 public:
  explicit Spin(int device) : device_(device), kernel_(test_kernels(), "spin", device) {
    const OnGpu here(device);
    void* memory = nullptr;
    check_driver(driver_api().mem_host_alloc(&memory, sizeof *word_, driver::kHostAllocPortable),
                 "cuMemHostAlloc");
    word_ = static_cast<std::uint32_t*>(memory);
    *word_ = 0;
  }
  ~Spin() {
    const OnGpu here(device_);
    driver_api().mem_free_host(word_);
  }
  Spin(const Spin&) = delete;
  Spin& operator=(const Spin&) = delete;

  void hold(CudaStream stream) {
    constexpr unsigned long long kNanoseconds = 20'000'000'000;
    kernel_.launch({}, stream, word_, kNanoseconds);
  }
  void let_go() { __atomic_store_n(word_, 1u, __ATOMIC_RELEASE); }

 private:
  const int device_;
  std::uint32_t* word_ = nullptr;  // pinned, so that the host and the GPU see it
  cuda::Kernel kernel_;
};

}}  // namespace c10d::v0
