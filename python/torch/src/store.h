// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/c.h"
#include "python/torch/src/pytorch.h"

namespace c10d_torch {

// A store of ours over a store of PyTorch. The caller frees it.
c10d_store* store_over(c10::intrusive_ptr<::c10d::Store> store);

}  // namespace c10d_torch
