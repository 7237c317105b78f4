// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/types.h"

#include <array>

#include "kernels/reduce.h"
#include "src/backends/mpi/runtime.h"

namespace c10d::inline v0 {
namespace {

bool is_float(DType dtype) noexcept { return dtype <= DType::bf16; }

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
MPI_Op float_op(DType dtype) {
  static const std::array ops = {make_op(combine<DType::f64, K>), make_op(combine<DType::f32, K>),
                                 make_op(combine<DType::f16, K>), make_op(combine<DType::bf16, K>)};
  return ops[static_cast<std::size_t>(dtype)];
}

// Open MPI's AVX loops saturate where sums of 8 and 16 bits must wrap.
MPI_Op narrow_sum(DType dtype) {
  static const std::array ops = {make_op(combine<DType::u8, ReduceOp::sum>),
                                 make_op(combine<DType::u16, ReduceOp::sum>)};
  return ops[size_of(dtype) - 1];
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
    default:
      return MPI_UINT64_T;
  }
}

MPI_Datatype reduce_type(DType dtype, ReduceOp::Kind kind) noexcept {
  if (dtype == DType::f64) return MPI_DOUBLE;
  if (dtype == DType::f32) return MPI_FLOAT;
  if (kind != ReduceOp::min && kind != ReduceOp::max) return move_type(dtype);
  switch (dtype) {
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i16:
      return MPI_INT16_T;
    case DType::i8:
      return MPI_INT8_T;
    default:
      return move_type(dtype);
  }
}

MPI_Op reduce_op(DType dtype, ReduceOp::Kind kind) {
  const bool boolean = dtype == DType::boolean;
  switch (kind) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      if (!boolean && size_of(dtype) <= 2) return narrow_sum(dtype);
      return boolean ? MPI_BOR : MPI_SUM;
    case ReduceOp::prod:
      return boolean ? MPI_BAND : MPI_PROD;
    case ReduceOp::min:
      if (is_float(dtype)) return float_op<ReduceOp::min>(dtype);
      return boolean ? MPI_BAND : MPI_MIN;
    case ReduceOp::max:
      if (is_float(dtype)) return float_op<ReduceOp::max>(dtype);
      return boolean ? MPI_BOR : MPI_MAX;
    case ReduceOp::band:
      return MPI_BAND;
    case ReduceOp::bor:
      return MPI_BOR;
    case ReduceOp::bxor:
      return MPI_BXOR;
  }
  return MPI_OP_NULL;
}

}  // namespace c10d::inline v0
