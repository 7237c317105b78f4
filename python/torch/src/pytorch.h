// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The headers of PyTorch, and what differs between its versions. PyTorch has a namespace c10d of
// its own: no source here includes a header of ours but c10d/c.h, which is C.

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace c10d_torch {

#if TORCH_VERSION_MAJOR >= 2
// A process group of PyTorch 2 has a Backend per type of device.
using Base = ::c10d::Backend;
using BaseError = c10::DistBackendError;
#else
using Base = ::c10d::ProcessGroup;
using BaseError = c10::Error;
#endif

using ::c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
using Milliseconds = std::chrono::milliseconds;

}  // namespace c10d_torch
