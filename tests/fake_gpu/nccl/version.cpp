// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/nccl/comm.h"

namespace fake_nccl {
const int kVersion = FAKE_NCCL_VERSION;
}
