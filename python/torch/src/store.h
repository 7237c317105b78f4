// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "c10d/c.h"
#include "python/torch/src/pytorch.h"

namespace c10d_torch {

using StorePtr = std::shared_ptr<c10d_store>;

// A store of ours over a store of PyTorch.
StorePtr store_over(c10::intrusive_ptr<::c10d::Store> store);
// A view of a store, with keys of its own.
StorePtr store_below(const std::string& prefix, const StorePtr& store);

}  // namespace c10d_torch
