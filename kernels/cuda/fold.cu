// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/fold.h"
#include "kernels/cuda/grid_device.cuh"

C10D_FOLD_KERNELS(C10D_CUDA_KERNEL)
