// SPDX-License-Identifier: BSD-3-Clause
// The kernels of a list, as a GPU runs them: C10D_CAST_KERNELS(C10D_CUDA_KERNEL).
#pragma once

#include "kernels/cuda/lane.h"

#define C10D_CUDA_KERNEL(kind, a, b, Operation)                                 \
  extern "C" __global__ void __launch_bounds__(c10d::cuda_kernels::kThreads, 2) \
      c10d_##kind##_##a##_##b(const c10d::cuda_kernels::Arguments arguments) {  \
    using namespace c10d::cuda_kernels;                                         \
    Operation<word::a, word::b>::run(arguments, {blockIdx.x, gridDim.x},        \
                                     {threadIdx.x, blockDim.x});                \
  }
