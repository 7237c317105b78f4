// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include "c10d/collective.h"

namespace c10d { inline namespace v0 {

// The type to move elements with.
MPI_Datatype move_type(DType dtype) noexcept;
// The type to reduce elements with. Sums and products of integers wrap, which C allows for unsigned
// ones only.
MPI_Datatype reduce_type(DType dtype) noexcept;
// MPI's own op, or ours where MPI's would be wrong. Not for avg and premul_sum, which are sums on
// the way, nor where collects_first().
MPI_Op reduce_op(DType dtype, ReduceOp::Kind kind);

}}  // namespace c10d::v0
