// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/clock.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>

namespace c10d { inline namespace v0 {
namespace {

constexpr auto kAnyOrder = std::memory_order_relaxed;

std::uint64_t counter() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return 0;
#endif
}

// Whether the kernel keeps time by the counter: only then do all CPUs agree on it, and what they
// still differ by is less than `valid`.
bool is_kernels_clock() {
  std::string source;
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >> source;
  return source == "tsc" || source == "kvm-clock" || source == "arch_sys_counter";
}

std::int64_t clock_ns() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// What both showed at the last calibration; since then ns + (counter - count) * scale / 2^32.
struct alignas(64) Reading {
  std::atomic<std::uint32_t> version;  // odd while the others change
  std::atomic<std::uint64_t> count;
  std::atomic<std::int64_t> ns;
  std::atomic<std::uint64_t> scale;
  std::atomic<std::uint64_t> valid;  // so many counts
};
Reading g_reading;

}  // namespace

std::int64_t steady_ns() noexcept {
  const Reading& from = g_reading;
  const std::uint32_t version = from.version.load(std::memory_order_acquire);
  const std::uint64_t passed = counter() - from.count.load(kAnyOrder);
  const std::int64_t ns = from.ns.load(kAnyOrder);
  const std::uint64_t scale = from.scale.load(kAnyOrder);
  const std::uint64_t valid = from.valid.load(kAnyOrder);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (passed >= valid || version % 2 != 0 || from.version.load(kAnyOrder) != version)
    return clock_ns();
  return ns + static_cast<std::int64_t>(passed * scale >> 32);
}

void calibrate_counter() noexcept {
  static const bool usable = is_kernels_clock();
  if (!usable) return;
  constexpr std::int64_t kUndisturbed = 200, kShortest = 5'000'000, kLongest = 1'000'000'000;
  constexpr std::uint64_t kValid = 100'000'000;  // ns
  const std::int64_t start = clock_ns();
  const std::uint64_t count = counter();
  const std::int64_t end = clock_ns();
  if (end - start > kUndisturbed) return;
  const std::int64_t ns = start + (end - start) / 2;
  Reading& last = g_reading;
  const std::uint64_t counts = count - last.count.load(kAnyOrder);
  const std::int64_t passed = ns - last.ns.load(kAnyOrder);
  if (passed < kShortest) return;
  const auto passed_ns = static_cast<std::uint64_t>(passed);
  const bool known = passed < kLongest && counts != 0;
  const std::uint32_t odd = last.version.load(kAnyOrder) | 1;
  last.version.store(odd, kAnyOrder);
  std::atomic_thread_fence(std::memory_order_release);
  last.count.store(count, kAnyOrder);
  last.ns.store(ns, kAnyOrder);
  last.scale.store(known ? (passed_ns << 32) / counts : 0, kAnyOrder);
  last.valid.store(known ? counts * kValid / passed_ns : 0, kAnyOrder);
  last.version.store(odd + 1, std::memory_order_release);
}

}}  // namespace c10d::v0
