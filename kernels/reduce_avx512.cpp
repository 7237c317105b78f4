// SPDX-License-Identifier: BSD-3-Clause
#if defined(__x86_64__)
// Vectors of AVX2 with the masks of AVX-512: docs/adr/0007-vectors-of-256-bits.md.
#define C10D_KERNEL_WIDTH 32
#define C10D_KERNEL_ENTRY reduce_avx512
#include "kernels/reduce_loops.h"
#endif
