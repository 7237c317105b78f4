// SPDX-License-Identifier: BSD-3-Clause
// The loop of streaming copies, compiled once per instruction set: see reduce_loops.h.
#pragma once

#include <cstddef>

namespace c10d { inline namespace v0 {

// For CPUs with AVX2: as stream_pages().
void stream_lines_avx2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
// For those without, with SSE2.
void stream_lines_sse2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

// What copy_and_refill() does with lines at aligned places; without `kept`, it is null.
struct Refilled {
  std::byte* taken;
  std::byte* place;
  const std::byte* refill;
  std::byte* kept;
  const std::byte* own;
};
void refill_lines_avx2(const Refilled& at, std::size_t bytes) noexcept;
void refill_lines_sse2(const Refilled& at, std::size_t bytes) noexcept;

namespace {

constexpr std::size_t kCacheLine = 64;

// `to` is aligned; bytes are whole lines, of which stream_line(to, from) copies one. Eight pages
// side by side, two lines of each at a time: a core prefetches within a page only, and one page
// after the other leaves it waiting for memory, 1.4 to 1.9 times as long.
template <class StreamLine>
void stream_pages(std::byte* to, const std::byte* from, std::size_t bytes,
                  const StreamLine& stream_line) noexcept {
  constexpr std::size_t kPages = 8, kPage = 4096, kRun = 2 * kCacheLine;
  std::size_t done = 0;
  for (; bytes - done >= kPages * kPage; done += kPages * kPage)
    for (std::size_t run = done; run < done + kPage; run += kRun)
      for (std::size_t first = run; first < run + kPages * kPage; first += kPage)
        for (std::size_t at = first; at < first + kRun; at += kCacheLine)
          stream_line(to + at, from + at);
  for (; done < bytes; done += kCacheLine) stream_line(to + done, from + done);
}

template <class StreamLine>
void refill_lines(const Refilled& all, std::size_t bytes, const StreamLine& stream_line) noexcept {
  const Refilled to = all;  // a copy that no store can alias
  for (std::size_t at = 0; at < bytes; at += kCacheLine) {
    stream_line(to.taken + at, to.place + at);
    __builtin_memcpy(to.place + at, to.refill + at, kCacheLine);
    if (to.kept != nullptr) stream_line(to.kept + at, to.own + at);
  }
}

}  // namespace
}}  // namespace c10d::v0
