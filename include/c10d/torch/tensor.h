// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "c10d/error.h"
#include "c10d/parallel/checkpoint.h"
#include "c10d/view.h"

namespace c10d { inline namespace v0 {

namespace detail {

// Nothing for complex32, quantized and 8-bit floating point numbers.
inline std::optional<DType> dtype_of_scalar(at::ScalarType type) noexcept {
  constexpr std::pair<at::ScalarType, DType> known[] = {
    {at::kDouble, DType::f64},
    {at::kFloat, DType::f32},
    {at::kHalf, DType::f16},
    {at::kBFloat16, DType::bf16},
    {at::kLong, DType::i64},
    {at::kInt, DType::i32},
    {at::kShort, DType::i16},
    {at::kChar, DType::i8},
    {at::kByte, DType::u8},
    {at::kBool, DType::boolean},
    {at::kComplexFloat, DType::c64},
    {at::kComplexDouble, DType::c128},
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    {at::kUInt16, DType::u16},
    {at::kUInt32, DType::u32},
    {at::kUInt64, DType::u64},
#endif
  };
  for (const auto& [scalar, dtype] : known)
    if (scalar == type) return dtype;
  return {};
}

}  // namespace detail

// All elements of a tensor as a buffer of an op: group.all_reduce(as_tensor(t)). Nothing is copied:
// the tensor must stay until the op is done. Autograd does not see what an op writes.
// On a GPU the op belongs to the stream in CallOptions (cuda.h), not to PyTorch's current one.
// Throws InvalidArgument for a tensor that is undefined, not dense, not contiguous, lazily
// conjugated or negated, of a dtype that c10d lacks, or on another device than a CPU or a CUDA GPU.
inline View as_tensor(const at::Tensor& tensor) {
  const auto refuse_if = [](bool wrong, const auto&... why) {
    if (wrong) throw InvalidArgument(c10::str("as_tensor: ", why...));
  };
  refuse_if(!tensor.defined(), "the tensor is undefined");
  refuse_if(tensor.layout() != at::kStrided, "the layout is ", tensor.layout(), ": use to_dense()");
  refuse_if(!tensor.is_contiguous(), "the tensor with sizes ", tensor.sizes(), " and strides ",
            tensor.strides(), " is not contiguous: use contiguous(), which copies");
  refuse_if(tensor.is_conj() || tensor.is_neg(),
            "the tensor is conjugated or negated when it is read: use resolve_conj() and "
            "resolve_neg()");
  const std::optional<DType> dtype = detail::dtype_of_scalar(tensor.scalar_type());
  refuse_if(!dtype, "c10d has no dtype for ", tensor.scalar_type(), ": convert the tensor");
  const at::Device at = tensor.device();
  refuse_if(!at.is_cpu() && !at.is_cuda(), "the tensor is on ", at,
            "; c10d takes memory of the CPU and of CUDA GPUs");
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), *dtype,
          at.is_cuda() ? cuda_device(at.index()) : Device{}};
}

namespace parallel {

// A whole tensor as a part of a Snapshot: state of an optimizer, for example. save() reads it and
// load() writes it; every rank gives the same tensor. Throws as as_tensor(), and for a GPU.
inline TensorPart part_of(std::string name, const at::Tensor& tensor) {
  const View view = as_tensor(tensor);
  if (view.device != Device{})
    throw InvalidArgument(c10::str(name, " is on ", tensor.device(), ": move it to the CPU"));
  return {.spec = {std::move(name), tensor.sizes().vec(), view.dtype},
          .data = {static_cast<std::byte*>(view.data), view.bytes()}};
}

}  // namespace parallel

}}  // namespace c10d::v0
