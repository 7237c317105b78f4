// SPDX-License-Identifier: BSD-3-Clause
#define C10D_KERNEL_WIDTH 16
#define C10D_KERNEL_ENTRY reduce_baseline
#include "kernels/reduce_loops.h"
