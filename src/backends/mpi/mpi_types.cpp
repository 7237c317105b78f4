// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/mpi_types.h"

#include <array>
#include <utility>

#include "kernels/reduce.h"
#include "src/backends/mpi/runtime.h"

namespace c10d { inline namespace v0 {
namespace {

template <DType D, ReduceOp::Kind K>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  const std::array inputs = {static_cast<const std::byte*>(in),
                             static_cast<const std::byte*>(inout)};
  reduce(D, K, static_cast<std::byte*>(inout), inputs, static_cast<std::size_t>(*count));
}

MPI_Op make_op(MPI_User_function* function) {
  MPI_Op op = MPI_OP_NULL;
  check_mpi(MPI_Op_create(function, 1, &op));
  return op;
}

template <ReduceOp::Kind K>
MPI_Op own_op(DType dtype) {
  static const auto ops = []<std::size_t... D>(std::index_sequence<D...>) {
    return std::array{make_op(combine<static_cast<DType>(D), K>)...};
  }
  (std::make_index_sequence<kDTypeCount>());
  return ops[static_cast<std::size_t>(dtype)];
}

}  // namespace

MPI_Datatype move_type(DType dtype) noexcept {
  switch (size_of(dtype)) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
    default:
      return MPI_C_DOUBLE_COMPLEX;
  }
}

MPI_Datatype reduce_type(DType dtype) noexcept {
  if (dtype == DType::f64) return MPI_DOUBLE;
  if (dtype == DType::f32) return MPI_FLOAT;
  if (dtype == DType::c64) return MPI_C_FLOAT_COMPLEX;
  return move_type(dtype);
}

// MPI's own ops where all libraries have them right. Open MPI's vector loops saturate sums of 8 and
// 16 bits, MPICH 4.0 orders unsigned integers as if they were signed, and neither says what min and
// max make of NaN.
MPI_Op reduce_op(DType dtype, ReduceOp::Kind kind) {
  const bool boolean = dtype == DType::boolean;
  switch (kind) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      if (boolean) return MPI_BOR;
      return size_of(dtype) <= 2 ? own_op<ReduceOp::sum>(dtype) : MPI_SUM;
    case ReduceOp::prod:
      return boolean ? MPI_BAND : MPI_PROD;
    case ReduceOp::min:
      return boolean ? MPI_BAND : own_op<ReduceOp::min>(dtype);
    case ReduceOp::max:
      return boolean ? MPI_BOR : own_op<ReduceOp::max>(dtype);
    case ReduceOp::band:
      return MPI_BAND;
    case ReduceOp::bor:
      return MPI_BOR;
    case ReduceOp::bxor:
      return MPI_BXOR;
  }
  return MPI_OP_NULL;
}

}}  // namespace c10d::v0
