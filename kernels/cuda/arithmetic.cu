// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/grid_device.cuh"

C10D_ARITHMETIC_KERNELS(C10D_CUDA_KERNEL)
