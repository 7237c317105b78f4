// SPDX-License-Identifier: BSD-3-Clause
// The kernels of kernels/cuda as the stand-in runs them: a library for FAKE_GPU_KERNELS.
#include <cstdint>
#include <vector>

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/casts.h"
#include "kernels/cuda/fold.h"
#include "tests/fake_gpu/gpu.h"

namespace fake_gpu { namespace {

using namespace c10d::cuda_kernels;

constexpr auto kMisaligned = static_cast<cu::Result>(716);

// The address behind which the bytes are; the context breaks, as a GPU's does, if they may not be
// used.
template <class Pointer>
bool translate(Pointer& at, std::size_t bytes, std::size_t alignment, Running& running) {
  if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0) {
    running.fail(kMisaligned);
    return false;
  }
  at = reinterpret_cast<Pointer>(view(at, bytes));
  if (!at) running.fail(cu::kIllegalAddress);
  return at != nullptr;
}

template <class Operation>
bool translate(Tensor& tensor, const Arguments& arguments, Running& running) {
  using In = typename Operation::In;
  using Out = typename Operation::Out;
  if (tensor.count == 0) return true;
  const std::size_t in = tensor.count * sizeof(In);
  return translate(tensor.out, tensor.count * sizeof(Out), alignof(Out), running) &&
         translate(tensor.in, (arguments.inputs - 1) * arguments.stride + in, alignof(In),
                   running) &&
         (Operation::kOperands == 1 || translate(tensor.other, in, alignof(In), running));
}

// All threads of all blocks, one after another.
template <template <class, class> class Kind, class A, class B>
void run(const Launch& launch, Running& running) {
  using Operation = Kind<A, B>;
  auto arguments = launch.parameter<Arguments>(0);
  std::vector<Tensor> table;
  if (arguments.table) {
    if (!translate(arguments.table, arguments.tensors * sizeof(Tensor), alignof(Tensor), running))
      return;
    table.assign(arguments.table, arguments.table + arguments.tensors);
    for (Tensor& tensor : table)
      if (!translate<Operation>(tensor, arguments, running)) return;
    arguments.table = table.data();
  } else if (!translate<Operation>(arguments.only, arguments, running)) {
    return;
  }
  for (unsigned block = 0; block < launch.grid[0]; ++block)
    for (unsigned thread = 0; thread < launch.block[0]; ++thread)
      Operation::run(arguments, {block, launch.grid[0]}, {thread, launch.block[0]});
}

#define C10D_BODY(kind, a, b, Operation) \
  FAKE_GPU_KERNEL(c10d_##kind##_##a##_##b, (run<Operation, word::a, word::b>), sizeof(Arguments));
C10D_CAST_KERNELS(C10D_BODY)
C10D_ARITHMETIC_KERNELS(C10D_BODY)
C10D_FOLD_KERNELS(C10D_BODY)

}}  // namespace fake_gpu
