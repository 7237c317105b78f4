// SPDX-License-Identifier: BSD-3-Clause
#include "python/torch/src/tensors.h"

#include <algorithm>
#include <optional>

#include "python/torch/src/failures.h"

namespace c10d_torch {
namespace {

std::optional<c10d_dtype> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return C10D_F64;
    case at::kFloat:
      return C10D_F32;
    case at::kHalf:
      return C10D_F16;
    case at::kBFloat16:
      return C10D_BF16;
    case at::kLong:
      return C10D_I64;
    case at::kInt:
      return C10D_I32;
    case at::kShort:
      return C10D_I16;
    case at::kChar:
      return C10D_I8;
    case at::kByte:
      return C10D_U8;
    case at::kBool:
      return C10D_BOOL;
    case at::kComplexFloat:
      return C10D_C64;
    case at::kComplexDouble:
      return C10D_C128;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    case at::kUInt16:
      return C10D_U16;
    case at::kUInt32:
      return C10D_U32;
    case at::kUInt64:
      return C10D_U64;
#endif
    default:
      return {};
  }
}

}  // namespace

void check_tensor(const at::Tensor& tensor, const char* what) {
  if (!tensor.defined()) throw Invalid(std::string(what) + " is no tensor");
  if (!tensor.device().is_cpu())
    throw Unsupported(std::string(what) + " is on " + tensor.device().str() +
                      "; this backend takes tensors on the CPU: use .cpu(), or a group with "
                      "backend=\"cpu:c10d,cuda:nccl\"");
  if (tensor.layout() != at::kStrided)
    throw Unsupported(std::string(what) +
                      " is sparse; only all_reduce takes sparse tensors (COO): use .to_dense()");
}

at::Tensor& only(Tensors& tensors, const char* what) {
  if (tensors.size() != 1)
    throw Invalid(std::string(what) + ": one tensor is needed, here are " +
                  std::to_string(tensors.size()));
  check_tensor(tensors[0], what);
  return tensors[0];
}

Tensors& only(std::vector<Tensors>& lists, const char* what) {
  if (lists.size() != 1)
    throw Invalid(std::string(what) + ": one list of tensors is needed, here are " +
                  std::to_string(lists.size()));
  return lists[0];
}

void check_list(const Tensors& tensors, std::size_t count, const at::Tensor& like,
                const char* what) {
  if (tensors.size() != count)
    throw Invalid(std::string(what) + ": " + std::to_string(count) +
                  " tensors are needed, one for each rank; here are " +
                  std::to_string(tensors.size()));
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, what);
    if (tensor.scalar_type() != like.scalar_type())
      throw Invalid(std::string(what) + ": a tensor is of " + c10::toString(tensor.scalar_type()) +
                    ", another one of " + c10::toString(like.scalar_type()) +
                    " (tensors of one op have the same dtype)");
  }
}

View view_of(const at::Tensor& contiguous, Use use) {
  const auto dtype = dtype_of(contiguous.scalar_type());
  const auto count = static_cast<std::size_t>(contiguous.numel());
  if (dtype) return {contiguous.data_ptr(), count, *dtype};
  if (use == Use::moved)
    return {contiguous.data_ptr(), contiguous.nbytes(), C10D_U8, contiguous.itemsize()};
  if (contiguous.scalar_type() == at::kComplexHalf)
    throw Unsupported("complex32 cannot be reduced; use complex64");
  throw Unsupported(std::string("tensors of ") + c10::toString(contiguous.scalar_type()) +
                    " can be moved, but not reduced");
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor plain(const at::Tensor& tensor) {
  if (is_plain(tensor)) return tensor;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

at::Tensor empty_like(const at::Tensor& tensor, std::int64_t count) {
  return at::empty({count}, tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

std::int64_t total(const Tensors& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

void pack(const Tensors& from, const at::Tensor& flat) {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : from) {
    flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    begin += tensor.numel();
  }
}

void unpack(const at::Tensor& flat, const Tensors& to) {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : to) {
    tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

std::vector<std::size_t> counts_of(const Tensors& tensors) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors)
    counts.push_back(static_cast<std::size_t>(tensor.numel()));
  return counts;
}

bool all_same(const std::vector<std::size_t>& counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](std::size_t count) { return count == counts[0]; });
}

}  // namespace c10d_torch
