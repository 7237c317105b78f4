// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/copy_lines.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace c10d { inline namespace v0 {

#if defined(__SSE2__)
namespace {

void stream_xmms(std::byte* line, const std::byte* source) noexcept {
  constexpr std::size_t kStore = sizeof(__m128i);
  __m128i values[kCacheLine / kStore];
  for (std::size_t i = 0; i < kCacheLine / kStore; ++i)
    values[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i * kStore));
  for (std::size_t i = 0; i < kCacheLine / kStore; ++i)
    _mm_stream_si128(reinterpret_cast<__m128i*>(line + i * kStore), values[i]);
}

}  // namespace

void stream_lines_sse2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  stream_pages(to, from, bytes, stream_xmms);
}
void refill_lines_sse2(const Refilled& at, std::size_t bytes) noexcept {
  refill_lines(at, bytes, stream_xmms);
}
#endif

namespace {

#if defined(__SSE2__)
#if defined(__x86_64__)
bool has_avx2() noexcept {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  if (has_avx2()) return stream_lines_avx2(to, from, bytes);
#endif
  stream_lines_sse2(to, from, bytes);
}
void refill_lines(const Refilled& at, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  if (has_avx2()) return refill_lines_avx2(at, bytes);
#endif
  refill_lines_sse2(at, bytes);
}
#else
#if defined(__aarch64__)
// Pairs with a hint to the caches: no intrinsic makes them. Other than those of x86 these stores
// keep the order of all others, so the release store that tells of them is fence enough.
void stream_line(std::byte* line, const std::byte* source) noexcept {
  constexpr std::size_t kStore = 2 * sizeof(uint8x16_t);
  for (std::size_t at = 0; at < kCacheLine; at += kStore) {
    const auto* const from = reinterpret_cast<const std::uint8_t*>(source + at);
    const uint8x16_t low = vld1q_u8(from), high = vld1q_u8(from + sizeof(uint8x16_t));
    asm volatile("stnp %q1, %q2, [%0]" ::"r"(line + at), "w"(low), "w"(high) : "memory");
  }
}
#else
void stream_line(std::byte* line, const std::byte* source) noexcept {
  std::memcpy(line, source, kCacheLine);
}
#endif
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) stream_line(to + at, from + at);
}
void refill_lines(const Refilled& at, std::size_t bytes) noexcept {
  refill_lines(at, bytes, stream_line);
}
#endif

Copying part_of(const Copying& all, std::size_t first, std::size_t end) noexcept {
  const std::size_t at = std::min(first, all.bytes);
  return {all.to + at, all.from + at, std::min(end, all.bytes) - at};
}
std::size_t until_line(const void* at) noexcept {
  return (kCacheLine - reinterpret_cast<std::uintptr_t>(at) % kCacheLine) % kCacheLine;
}

}  // namespace

void copy(std::byte* to, const std::byte* from, std::size_t bytes, StorePolicy policy) noexcept {
  if (bytes == 0 || to == from) return;
  if (policy == StorePolicy::temporal) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::size_t head = std::min(bytes, until_line(to));
  const std::size_t lines = (bytes - head) / kCacheLine * kCacheLine;
  std::memcpy(to, from, head);
  stream_lines(to + head, from + head, lines);
  std::memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

void copy_and_refill(const Copying& taken, const Copying& refill, const Copying& kept) noexcept {
  const std::size_t head = until_line(taken.to);
  const bool together = kept.bytes != 0 && until_line(kept.to) == head;
  const std::size_t common =
      std::min({taken.bytes, refill.bytes, together ? kept.bytes : taken.bytes});
  const std::size_t first = std::min(head, common);
  const std::size_t end = first + (common - first) / kCacheLine * kCacheLine;
  const auto one_by_one = [&](std::size_t from, std::size_t to) {
    const Copying in = part_of(taken, from, to), out = part_of(refill, from, to);
    copy(in.to, in.from, in.bytes, StorePolicy::streaming);
    copy(out.to, out.from, out.bytes, StorePolicy::temporal);
    if (!together) return;
    const Copying own = part_of(kept, from, to);
    copy(own.to, own.from, own.bytes, StorePolicy::streaming);
  };
  one_by_one(0, first);
  if (end != first)
    refill_lines({taken.to + first, refill.to + first, refill.from + first,
                  together ? kept.to + first : nullptr, together ? kept.from + first : nullptr},
                 end - first);
  one_by_one(end, std::max({taken.bytes, refill.bytes, kept.bytes}));
  if (!together) copy(kept.to, kept.from, kept.bytes, StorePolicy::streaming);
}

void stream_fence() noexcept {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}}  // namespace c10d::v0
