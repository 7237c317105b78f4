// SPDX-License-Identifier: BSD-3-Clause
// The GPUs of this process, and what every call of the driver needs: a context and the words for
// what it returned.
#pragma once

#include <string>
#include <string_view>

#include "c10d/export.h"
#include "c10d/view.h"
#include "src/device/driver.h"

namespace c10d { inline namespace v0 {

// The driver, opened and initialised at the first call.
struct Gpus {
  driver::Api api;
  int count = 0;    // of GPUs
  int version = 0;  // of CUDA: 13000
  std::string why;  // why there is no GPU; empty if there is one
};
C10D_API const Gpus& gpus();
// Of code that runs where there is a GPU.
inline const driver::Api& driver_api() { return gpus().api; }

// C10D_DEVICE, or else the GPU for the process with that rank among those of its host.
C10D_API Device default_gpu(int local_rank);
// Throws unless this process has GPU `device`.
C10D_API void require_gpu(int device);
// "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
C10D_API std::string describe(driver::Result result);
// "the CPU", "cuda:0".
C10D_API std::string name_of(Device device);
// "GPU-...", as nvidia-smi prints it.
C10D_API std::string uuid_of(int device);

[[noreturn]] C10D_API void throw_driver_error(driver::Result result, std::string_view what);
// Throws unless it is success. `what` was tried: "cuStreamQuery on cuda:0".
inline void check_driver(driver::Result result, std::string_view what) {
  if (result != driver::kSuccess) throw_driver_error(result, what);
}

// The primary context of a GPU, retained once and for the rest of the process: a release would wait
// for what runs. Throws as require_gpu(), and what the driver says.
C10D_API driver::Context primary_context(int device);

// Makes the primary context of a GPU the current one of this thread until the end of the scope.
class C10D_API OnGpu {
 public:
  explicit OnGpu(int device);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
};

}}  // namespace c10d::v0
