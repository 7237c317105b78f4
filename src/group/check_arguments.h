// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "c10d/call.h"
#include "c10d/capability.h"
#include "c10d/collective.h"

namespace c10d { inline namespace v0 {

// Throws InvalidArgument naming the op, the argument and the values when `op` makes no sense on
// this rank: counts, dtypes, devices, root or peer, missing buffers, partial overlap.
void check_arguments(const Op& op, int rank, int size);

// The same for an op on memory of a GPU: buffers that lie elsewhere than on `gpu`, whatever their
// views say, and a stream of another one. Of streams that were destroyed the driver knows nothing.
// Returns whether the stream is captured into a graph.
bool check_gpu(const Op& op, CudaStream stream, Device gpu, int rank);
// The same for an op on host memory, in a group with a GPU: memory of one is no host memory.
void check_host(const Op& op);

// The same for the source of a call, which names it in the error.
void check_source(std::string_view call, int peer, int size);

// Throws InvalidArgument when an enum of `query` holds a value that does not exist.
void check_query(const Query& query);

}}  // namespace c10d::v0
