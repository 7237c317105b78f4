// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/launch.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/casts.h"
#include "kernels/cuda/fold.h"
#include "kernels/cuda/images.h"

namespace c10d { inline namespace v0 { namespace cuda_kernels {
namespace {

// As the lists of kernels spell them.
constexpr auto kDTypes = std::to_array<std::string_view>(
    {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "boolean",
     "c64", "c128", "f8e4m3", "f8e5m2"});
static_assert(kDTypes.size() == kDTypeCount);
constexpr auto kOps = std::to_array<std::string_view>(
    {"sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "premul_sum"});
static_assert(kOps.size() == kReduceOpCount);

std::string_view word_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
std::string_view word_of(ReduceOp::Kind kind) { return kOps[kind]; }

// Addition and bits are the same for signed and unsigned.
DType unsigned_of(DType dtype) {
  if (dtype == DType::i64) return DType::u64;
  if (dtype == DType::i32) return DType::u32;
  if (dtype == DType::i16) return DType::u16;
  return dtype == DType::i8 ? DType::u8 : dtype;
}

struct Row {
  std::string_view kind, a, b;
  const char* name;
  std::span<const std::byte> Images::*image;

  Kernel kernel() const noexcept { return {images().*image, name}; }
};
#define C10D_ROW(image, kind, a, b) {#kind, #a, #b, "c10d_" #kind "_" #a "_" #b, &Images::image},
#define C10D_IN_CASTS(kind, a, b, operation) C10D_ROW(casts, kind, a, b)
#define C10D_IN_ARITHMETIC(kind, a, b, operation) C10D_ROW(arithmetic, kind, a, b)
#define C10D_IN_FOLD(kind, a, b, operation) C10D_ROW(fold, kind, a, b)
constexpr Row kRows[] = {C10D_CAST_KERNELS(C10D_IN_CASTS) C10D_ARITHMETIC_KERNELS(
    C10D_IN_ARITHMETIC) C10D_FOLD_KERNELS(C10D_IN_FOLD)};
#undef C10D_IN_FOLD
#undef C10D_IN_ARITHMETIC
#undef C10D_IN_CASTS
#undef C10D_ROW

Kernel kernel_of(std::string_view kind, std::string_view a, std::string_view b) noexcept {
  for (const Row& row : kRows)
    if (row.kind == kind && row.a == a && row.b == b) return row.kernel();
  return {};
}

}  // namespace

std::string_view why_none() noexcept { return images().why_none; }
std::vector<Kernel> all_kernels() {
  std::vector<Kernel> all;
  for (const Row& row : kRows) all.push_back(row.kernel());
  return all;
}

Kernel cast_kernel(DType from, DType to) noexcept {
  return kernel_of("cast", word_of(from), word_of(to));
}
Kernel parity_kernel() noexcept { return kernel_of("parity", "u8", "u8"); }
Kernel to_keys_kernel(ReduceOp::Kind kind, DType dtype) noexcept {
  return kernel_of("to_keys", word_of(kind), word_of(dtype));
}
Kernel from_keys_kernel(DType dtype) noexcept {
  return kernel_of("from_keys", dtype == DType::f64 ? "i64" : "i32", word_of(dtype));
}
Kernel divide_kernel(DType from, DType to) noexcept {
  return kernel_of("divide", word_of(from), word_of(to));
}
Kernel combine_kernel(ReduceOp::Kind kind, DType dtype) noexcept {
  using enum ReduceOp::Kind;
  if (dtype == DType::boolean) {
    if (kind == max || kind == bor) kind = sum;
    if (kind == min || kind == band) kind = prod;
  }
  const bool has_order = kind == min || kind == max;
  return kernel_of("combine", word_of(kind), word_of(has_order ? dtype : unsigned_of(dtype)));
}
Kernel fold_kernel(ReduceOp::Kind kind, DType dtype, std::uint64_t inputs) noexcept {
  if (inputs == 0 || inputs > kMostInputs) return {};
  return kernel_of("fold", word_of(kind), word_of(dtype));
}

std::uint64_t number_pieces(std::span<Tensor> tensors) noexcept {
  std::uint64_t pieces = 0;
  for (Tensor& tensor : tensors) {
    tensor.first_piece = pieces;
    pieces += tensor.count / kPiece + (tensor.count % kPiece != 0 ? 1 : 0);
  }
  return pieces;
}

Arguments arguments_of(const Tensor& tensor) noexcept {
  Arguments arguments;
  arguments.only = tensor;
  arguments.pieces = number_pieces({&arguments.only, 1});
  return arguments;
}

Arguments arguments_of(const Tensor* in_device, std::size_t tensors,
                       std::uint64_t pieces) noexcept {
  Arguments arguments;
  arguments.table = in_device;
  arguments.tensors = tensors;
  arguments.pieces = pieces;
  return arguments;
}

unsigned blocks_for(std::uint64_t pieces, int multiprocessors) noexcept {
  constexpr std::uint64_t kBlocksOfOne = 8;  // 2,048 threads, as many as a multiprocessor runs
  const std::uint64_t most = kBlocksOfOne * static_cast<std::uint64_t>(multiprocessors);
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>(pieces, 1, std::max<std::uint64_t>(most, 1)));
}

}}}  // namespace c10d::v0::cuda_kernels
