// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduce.h"

#include <array>
#include <stdexcept>
#include <string>

#include "kernels/reduce_entry.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace c10d::inline v0 {
namespace {

constexpr std::array kIsas = {KernelIsa::baseline, KernelIsa::avx2, KernelIsa::avx512};

std::size_t count_runnable() noexcept {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  if (!f16c || !__builtin_cpu_supports("avx2")) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? 3 : 2;
#else
  return 1;
#endif
}

ReduceEntry* entry_of(KernelIsa isa) noexcept {
#if defined(__x86_64__)
  if (isa == KernelIsa::avx2) return reduce_avx2;
  if (isa == KernelIsa::avx512) return reduce_avx512;
#endif
  static_cast<void>(isa);
  return reduce_baseline;
}

}  // namespace

std::span<const KernelIsa> runnable_isas() noexcept {
  static const std::size_t runnable = count_runnable();
  return std::span(kIsas).first(runnable);
}

void reduce(KernelIsa isa, DType dtype, ReduceOp op, std::byte* out,
            std::span<const std::byte* const> in, std::size_t count, StorePolicy policy,
            const Refill& refill) {
  if (in.empty()) throw std::invalid_argument("reduce: no input");
  if (count == 0) return;
  if (!entry_of(isa)(dtype, op.kind, op.factor, out, in.data(), in.size(), count, policy, refill))
    throw std::invalid_argument("reduce: op " + std::to_string(op.kind) +
                                " has no meaning on dtype " +
                                std::to_string(static_cast<int>(dtype)));
}

void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> in,
            std::size_t count, StorePolicy policy, const Refill& refill) {
  static const KernelIsa fastest = runnable_isas().back();
  reduce(fastest, dtype, op, out, in, count, policy, refill);
}

}  // namespace c10d::inline v0
