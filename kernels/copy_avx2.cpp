// SPDX-License-Identifier: BSD-3-Clause
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/copy_lines.h"

namespace c10d { inline namespace v0 {

namespace {

void stream_ymms(std::byte* line, const std::byte* source) noexcept {
  const auto* const from = reinterpret_cast<const __m256i*>(source);
  auto* const to = reinterpret_cast<__m256i*>(line);
  const __m256i low = _mm256_loadu_si256(from), high = _mm256_loadu_si256(from + 1);
  _mm256_stream_si256(to, low);
  _mm256_stream_si256(to + 1, high);
}

}  // namespace

void stream_lines_avx2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  stream_pages(to, from, bytes, stream_ymms);
}
void refill_lines_avx2(const Refilled& at, std::size_t bytes) noexcept {
  refill_lines(at, bytes, stream_ymms);
}

}}  // namespace c10d::v0
#endif
