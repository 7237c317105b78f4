// SPDX-License-Identifier: BSD-3-Clause
// Bodies of the kernels of same_as_real/kernels.h.
#include <cstring>
#include <thread>

#include "tests/fake_gpu/gpu.h"

namespace fake_gpu { namespace {

// The word at an address of the GPU; null, and the context breaks, if it may not be used.
unsigned* word(cu::Pointer at, Running& running) {
  std::byte* const bytes = view(at, sizeof(unsigned));
  if (!bytes) {
    running.fail(cu::kIllegalAddress);
  } else if (at % sizeof(unsigned) != 0) {
    running.fail(static_cast<cu::Result>(716));
  } else {
    return reinterpret_cast<unsigned*>(bytes);
  }
  return nullptr;
}

void nothing(const Launch&, Running&) {}

void spin_until(const Launch& launch, Running& running) {
  const unsigned* const at = word(launch.parameter<cu::Pointer>(0), running);
  const std::chrono::nanoseconds limit(launch.parameter<unsigned long long>(1));
  const auto start = std::chrono::steady_clock::now();
  while (at && !running.is_over() && __atomic_load_n(at, __ATOMIC_ACQUIRE) == 0 &&
         std::chrono::steady_clock::now() - start < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void poke_word(const Launch& launch, Running& running) {
  unsigned* const at = word(launch.parameter<cu::Pointer>(0), running);
  if (at) *at = launch.parameter<unsigned>(1);
}

void add_one_to(const Launch& launch, Running& running) {
  unsigned* const at = word(launch.parameter<cu::Pointer>(0), running);
  if (at) *at += launch.grid[0] * launch.block[0];
}

void trap(const Launch&, Running& running) { running.fail(cu::kLaunchFailed); }

void read_shared(const Launch& launch, Running& running) {
  unsigned* const at = word(launch.parameter<cu::Pointer>(0), running);
  if (at) *at = 0;
}

FAKE_GPU_KERNEL(empty, nothing);
FAKE_GPU_KERNEL(spin, spin_until, sizeof(cu::Pointer), sizeof(unsigned long long));
FAKE_GPU_KERNEL(poke, poke_word, sizeof(cu::Pointer), sizeof(unsigned));
FAKE_GPU_KERNEL(add_one, add_one_to, sizeof(cu::Pointer));
FAKE_GPU_KERNEL(stop, trap);
[[maybe_unused]] const bool use_shared_is_registered =
    (register_kernel({"use_shared", {sizeof(cu::Pointer)}, read_shared, 8}), true);

}}  // namespace fake_gpu
