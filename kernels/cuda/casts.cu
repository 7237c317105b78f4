// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/casts.h"
#include "kernels/cuda/grid_device.cuh"

C10D_CAST_KERNELS(C10D_CUDA_KERNEL)
