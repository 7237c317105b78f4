// SPDX-License-Identifier: BSD-3-Clause
// A library that FAKE_GPU_KERNELS names.
#include "tests/fake_gpu/gpu.h"

namespace fake_gpu { namespace {

void double_byte(const Launch& launch, Running&) {
  std::byte* const at = view(launch.parameter<cu::Pointer>(0), 1);
  if (at) *at = std::byte(2 * std::to_integer<unsigned>(*at));
}

FAKE_GPU_KERNEL(twice, double_byte, sizeof(cu::Pointer));

}}  // namespace fake_gpu
