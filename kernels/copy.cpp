// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/copy_lines.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace c10d::inline v0 {

#if defined(__SSE2__)
void stream_lines_sse2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  stream_pages(to, from, bytes, [](std::byte* line, const std::byte* source) {
    constexpr std::size_t kStore = sizeof(__m128i);
    __m128i values[kCacheLine / kStore];
    for (std::size_t i = 0; i < kCacheLine / kStore; ++i)
      values[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i * kStore));
    for (std::size_t i = 0; i < kCacheLine / kStore; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(line + i * kStore), values[i]);
  });
}
#endif

namespace {

#if defined(__SSE2__)
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  static const bool has_avx512 = __builtin_cpu_supports("avx512f");
  if (has_avx512) return stream_lines_avx512(to, from, bytes);
#endif
  stream_lines_sse2(to, from, bytes);
}
#elif defined(__aarch64__)
// Pairs with a hint to the caches: no intrinsic makes them. Other than those of x86 these stores
// keep the order of all others, so the release store that tells of them is fence enough.
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t kStore = 2 * sizeof(uint8x16_t);
  for (std::size_t at = 0; at < bytes; at += kStore) {
    const auto* const source = reinterpret_cast<const std::uint8_t*>(from + at);
    const uint8x16_t low = vld1q_u8(source), high = vld1q_u8(source + sizeof(uint8x16_t));
    asm volatile("stnp %q1, %q2, [%0]" ::"r"(to + at), "w"(low), "w"(high) : "memory");
  }
}
#else
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace

void copy(std::byte* to, const std::byte* from, std::size_t bytes, StorePolicy policy) noexcept {
  if (bytes == 0 || to == from) return;
  if (policy == StorePolicy::temporal) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::size_t head = std::min(
      bytes, (kCacheLine - reinterpret_cast<std::uintptr_t>(to) % kCacheLine) % kCacheLine);
  const std::size_t lines = (bytes - head) / kCacheLine * kCacheLine;
  std::memcpy(to, from, head);
  stream_lines(to + head, from + head, lines);
  std::memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

void stream_fence() noexcept {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace c10d::inline v0
