// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/capability.h"

namespace c10d { inline namespace v0 { namespace nccl {

// What nccl can do on memory of that GPU, and how: NCCL's own call, or composed.
Support supports(const Query& query, Device gpu);

}}}  // namespace c10d::v0::nccl
