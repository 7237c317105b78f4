// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/supports.h"

#include <string>

#include "src/backends/nccl/calls.h"
#include "src/backends/nccl/composed.h"

namespace c10d { inline namespace v0 { namespace nccl {

Support supports(const Query& query) {
  if (query.device != DeviceType::cuda)
    return refused("nccl works on memory of GPUs; host memory has another backend of the group");
  switch (query.op) {
    case OpKind::gather:
    case OpKind::gather_v:
    case OpKind::scatter:
    case OpKind::scatter_v:
    case OpKind::all_to_all:
    case OpKind::all_to_all_v:
      return composed("grouped send and recv");
    case OpKind::all_gather_v:
      return composed("grouped broadcasts");
    case OpKind::barrier:
      return composed("all_reduce of one number");
    default:
      break;
  }
  if (query.any_source) return refused("NCCL has no message from any rank: name the sender");
  if (query.tags_out_of_order)
    return refused("NCCL has no tags: messages between two ranks match in their order");
  if (query.to_self) return refused("a rank sends itself nothing over nccl: copy it");
  if (!is_reduction(query.op)) return {};
  if (const auto why = why_unsupported(query.op, query.reduce_op, query.dtype); !why.empty())
    return refused(std::string(why));
  if (!is_native_reduction(query.op, query.reduce_op, query.dtype)) return supports_composed(query);
  Support support;
  if (query.op == OpKind::reduce_scatter_v) support.composed = "grouped reduces";
  if (query.dtype == DType::f16 || query.dtype == DType::bf16)
    support.rounds = Rounding::every_step;
  return support;
}

}}}  // namespace c10d::v0::nccl
