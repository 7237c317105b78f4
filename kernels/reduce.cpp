// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduce.h"

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/reduce_entry.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

namespace c10d { inline namespace v0 {
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

// How this thread rounds and what it does with denormals; kHappened are no settings.
#if defined(__x86_64__)
using Arithmetic = unsigned;
constexpr Arithmetic kStandard = 0x1f80, kHappened = 0x3f;
Arithmetic arithmetic() noexcept { return _mm_getcsr(); }
void set_arithmetic(Arithmetic value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
using Arithmetic = std::uint64_t;
constexpr Arithmetic kStandard = 0, kHappened = 0;
Arithmetic arithmetic() noexcept {
  Arithmetic value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_arithmetic(Arithmetic value) noexcept { asm volatile("msr fpcr, %0" ::"r"(value)); }
#else
using Arithmetic = unsigned;
constexpr Arithmetic kStandard = 0, kHappened = 0;
Arithmetic arithmetic() noexcept { return kStandard; }
void set_arithmetic(Arithmetic) noexcept {}
#endif

// Some programs flush denormals, and a library made with -ffast-math has the thread that loads it
// do so: bits must not depend on that.
class InStandardArithmetic {
 public:
  InStandardArithmetic() noexcept : before_(arithmetic()) {
    if (differs()) set_arithmetic(kStandard);
  }
  ~InStandardArithmetic() {
    if (differs()) set_arithmetic(before_);
  }
  InStandardArithmetic(const InStandardArithmetic&) = delete;
  InStandardArithmetic& operator=(const InStandardArithmetic&) = delete;

 private:
  bool differs() const noexcept { return (before_ & ~kHappened) != kStandard; }
  const Arithmetic before_;
};

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
            const Copying& refill) {
  if (in.empty()) throw std::invalid_argument("reduce: no input");
  if (count == 0) return;
  const bool has_order = !is_complex(dtype);  // complex numbers are reduced part by part
  const bool adds =
      op.kind == ReduceOp::sum || op.kind == ReduceOp::avg || op.kind == ReduceOp::premul_sum;
  const std::size_t numbers = has_order ? count : 2 * count;
  const InStandardArithmetic standard;
  if ((!has_order && !adds) ||
      !entry_of(isa)(real_of(dtype), op, {out, in.data(), in.size(), numbers, policy, refill}))
    throw std::invalid_argument("reduce: op " + std::to_string(op.kind) +
                                " has no meaning on dtype " +
                                std::to_string(static_cast<int>(dtype)));
}

void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> in,
            std::size_t count, StorePolicy policy, const Copying& refill) {
  static const KernelIsa fastest = runnable_isas().back();
  reduce(fastest, dtype, op, out, in, count, policy, refill);
}

}}  // namespace c10d::v0
