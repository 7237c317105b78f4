// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// For programs with LibTorch, PyTorch's C++ interface: tensors as buffers, and training of
// torch::nn::Modules, as replicas or sharded. These headers are for the program alone: they call
// the LibTorch of the program, and the library knows nothing of it. docs/libtorch.md says how to
// build, and what to write in a source that includes torch/csrc/distributed, which has a namespace
// c10d of its own.
#include "c10d/init.h"
#include "c10d/torch/distributed_module.h"
#include "c10d/torch/sharded_sequence.h"
#include "c10d/torch/tensor.h"
