// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/supports.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "c10d/cuda.h"
#include "src/backends/nccl/calls.h"
#include "src/backends/nccl/composed.h"
#include "src/backends/nccl/library.h"

namespace c10d { inline namespace v0 { namespace nccl {
namespace {

// Why NCCL does not reduce numbers of 8 bits so, or empty. Nothing is composed of them.
std::string why_no_float8(const Query& query, Device gpu) {
  if (query.op == OpKind::scan || query.op == OpKind::exscan)
    return "NCCL has no scan, and none is composed of numbers of 8 bits: scan them as f16";
  if (query.reduce_op != ReduceOp::sum && query.reduce_op != ReduceOp::prod)
    return "of numbers of 8 bits nccl has sum and prod: NCCL's min and max drop NaN, and its avg "
           "and premul_sum fail at one rank; reduce them as f16";
  if (api().version < kFirstWithFloat8)
    return fmt::format("NCCL {} does not reduce numbers of 8 bits, {} does",
                       version_text(api().version), version_text(kFirstWithFloat8));
  if (const auto info = cuda::device_info(gpu.index); info.compute_capability < 90)
    return fmt::format(
        "NCCL reduces numbers of 8 bits from compute capability 9.0 on; {} has {}.{}", info.name,
        info.compute_capability / 10, info.compute_capability % 10);
  return {};
}

}  // namespace

Support supports(const Query& query, Device gpu) {
  if (query.device != DeviceType::cuda)
    return refused("nccl works on memory of GPUs; host memory has another backend of the group");
  switch (query.op) {
    case OpKind::gather:
    case OpKind::scatter:
    case OpKind::all_to_all:
      if (api().all_to_all) return {};  // and the other two: from 2.28 on
      return composed("grouped send and recv");
    case OpKind::gather_v:
    case OpKind::scatter_v:
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
  if (is_float8(query.dtype))
    if (std::string why = why_no_float8(query, gpu); !why.empty()) return refused(std::move(why));
  if (!is_native_reduction(query.op, query.reduce_op, query.dtype)) return supports_composed(query);
  Support support;
  if (query.op == OpKind::reduce_scatter_v) support.composed = "grouped reduces";
  if (query.dtype == DType::f16 || query.dtype == DType::bf16 || is_float8(query.dtype))
    support.rounds = Rounding::every_step;
  return support;
}

}}}  // namespace c10d::v0::nccl
