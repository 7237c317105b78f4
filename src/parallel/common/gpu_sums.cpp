// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/common/gpu_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "src/parallel/common/host_memory.h"
#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {

namespace kernels = cuda_kernels;

void check_same_memory(std::string_view who, const ConstView& a, const ConstView& b) {
  if (a.device == b.device) return;
  throw_invalid("{}: it was given {} and {}: copy it to one place first (cuda::copy)", who,
                memory_of(a.device), memory_of(b.device));
}

void check_stream(std::string_view who, Device device, CudaStream stream) {
  if (device.type == DeviceType::cpu && stream != nullptr)
    throw_invalid(
        "{}: it was given host memory and a stream, which orders work on a GPU: give none", who);
}

// The sum of one range of elements: nodes in order, and their values.
class GpuSums::Fold {
 public:
  Fold(GpuSums& gpu, std::span<const ShardRange> nodes, std::span<const View> values)
      : gpu_(gpu), nodes_(nodes), values_(values) {}

  // Where the sum lies then: it is the only value, or `to`, or in the place of the first value.
  const void* sum(const Part& part, void* to) {
    if (part.count() == 1) return value(part.first);
    if (sum_at_once(part, to, 1)) return to;
    const auto [left, right] = halves(part);
    const void* const a = sum(left, value(left.first));
    const void* const b = sum(right, value(right.first));
    gpu_.launch(kernels::combine_kernel(ReduceOp::sum, dtype()),
                kernels::arguments_of({.out = to, .in = a, .other = b, .count = values_[0].count}));
    return to;
  }

  // By one launch, where the values lie as the kernel wants them, and their tree is its own. With
  // one value per rank, and a power of two of both, that is the whole sum.
  bool sum_at_once(const Part& part, void* to, double divisor) {
    const auto kernel = kernels::fold_kernel(ReduceOp::sum, dtype(), part.count());
    if (part.count() < 2 || !kernel || !lie_evenly(part) || !is_tree_of_kernel(part)) return false;
    kernels::Arguments arguments =
        kernels::arguments_of({.out = to, .in = value(part.first), .count = values_[0].count});
    arguments.divisor = divisor;
    arguments.inputs = part.count();
    arguments.stride = address(part.first + 1) - address(part.first);
    gpu_.launch(kernel, arguments);
    return true;
  }

 private:
  DType dtype() const { return values_[0].dtype; }
  void* value(std::size_t i) const { return values_[i].data; }
  std::uintptr_t address(std::size_t i) const { return reinterpret_cast<std::uintptr_t>(value(i)); }

  std::pair<Part, Part> halves(const Part& part) const {
    const int mid = (part.node.first + part.node.last) / 2;
    std::size_t split = part.first;
    while (nodes_[split].first < mid) ++split;
    return {{{part.node.first, mid}, part.first, split}, {{mid, part.node.last}, split, part.last}};
  }
  bool lie_evenly(const Part& part) const {
    const std::uintptr_t stride = address(part.first + 1) - address(part.first);
    for (std::size_t i = part.first; i + 1 < part.last; ++i)
      if (address(i + 1) < address(i) || address(i + 1) - address(i) != stride) return false;
    return true;
  }
  // The kernel splits off the largest power of two: kernels/reduce.h.
  bool is_tree_of_kernel(const Part& part) const {
    if (part.count() == 1) return true;
    const auto [left, right] = halves(part);
    return left.count() == std::bit_floor(part.count() - 1) && is_tree_of_kernel(left) &&
           is_tree_of_kernel(right);
  }

  GpuSums& gpu_;
  const std::span<const ShardRange> nodes_;
  const std::span<const View> values_;
};

GpuSums::GpuSums(std::string_view who, Device device, CudaStream stream)
    : device_(device),
      stream_(stream),
      multiprocessors_(cuda::device_info(device.index).multiprocessors) {
  if (const auto why = kernels::why_none(); !why.empty())
    throw_failure({.code = Code::unsupported,
                   .message = fmt::format("{}: sums in {} need CUDA kernels, and {}: copy it to "
                                          "host memory first (cuda::copy), or build with them",
                                          who, memory_of(device), why)});
}

void GpuSums::load(DType dtype) {
  loaded(kernels::combine_kernel(ReduceOp::sum, dtype));
  loaded(kernels::fold_kernel(ReduceOp::sum, dtype, 2));
  loaded(kernels::divide_kernel(dtype, dtype));
}

const cuda::Kernel& GpuSums::loaded(const kernels::Kernel& kernel) {
  const auto found = kernels_.find(kernel.name);
  if (found != kernels_.end()) return found->second;
  return kernels_.try_emplace(kernel.name, kernel.image, kernel.name, device_.index).first->second;
}

void GpuSums::launch(const kernels::Kernel& kernel, const kernels::Arguments& arguments) {
  const unsigned blocks = kernels::blocks_for(arguments.pieces, multiprocessors_);
  loaded(kernel).launch({.blocks = {.x = blocks}, .threads = {.x = kernels::kThreads}}, stream_,
                        arguments);
}

void GpuSums::add(const View& to, const ConstView& from) {
  if (to.count == 0) return;
  launch(kernels::combine_kernel(ReduceOp::sum, to.dtype),
         kernels::arguments_of(
             {.out = to.data, .in = to.data, .other = from.data, .count = to.count}));
}

void GpuSums::divide(const View& value, double divisor) {
  if (value.count == 0 || divisor == 1) return;
  kernels::Arguments arguments =
      kernels::arguments_of({.out = value.data, .in = value.data, .count = value.count});
  arguments.divisor = divisor;
  launch(kernels::divide_kernel(value.dtype, value.dtype), arguments);
}

void GpuSums::fold(const View& out, int shards, std::span<const ShardRange> nodes,
                   std::span<const View> values, double divisor) {
  if (out.count == 0) return;
  const Part all{{0, shards}, 0, nodes.size()};
  Fold tree(*this, nodes, values);
  if (tree.sum_at_once(all, out.data, divisor)) return;
  const void* const sum = tree.sum(all, out.data);
  if (sum != out.data) cuda::copy(out, {sum, out.count, out.dtype, out.device}, stream_);
  divide(out, divisor);
}

}}}  // namespace c10d::v0::parallel
