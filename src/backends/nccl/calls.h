// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/spi/backend.h"
#include "src/backends/nccl/nccl.h"

namespace c10d { inline namespace v0 { namespace nccl {

// What nccl can do on memory of GPUs, with the version of NCCL that is opened.
Support supports(const Query& query);

// Where the calls of one op go.
struct Target {
  Comm comm;
  int rank, size;
  Stream stream;
  void* scratch;  // of a barrier: 4 bytes of the GPU
};

// Enqueues one op: its calls of NCCL, in one of NCCL's groups where it takes several, and copies of
// what a rank sends itself. The GPU is current. Throws DistError.
void enqueue(const Target& target, const Op& op);

}}}  // namespace c10d::v0::nccl
