// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/copy_lines.h"

namespace c10d { inline namespace v0 { namespace {

std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 7 + i / 251);
  return values;
}

// Around the pages that go side by side: every byte arrives where it belongs, and none beside it
// changes.
TEST(Copy, OfPagesSideBySide) {
  constexpr std::size_t kMargin = 64;
  constexpr std::byte kUntouched{0xa5};
  for (const StorePolicy policy : {StorePolicy::temporal, StorePolicy::streaming})
    for (const std::size_t bytes :
         {4095, 4160, 32767, 32768, 32832, 32900, 65536, 98304 + 4096 + 65})
      for (const std::size_t shift : {0, 1, 16, 61}) {
        const std::vector<std::byte> from = numbered(bytes + 5);
        std::vector<std::byte> to(bytes + 2 * kMargin, kUntouched);
        copy(to.data() + shift, from.data() + 5, bytes, policy);
        stream_fence();
        for (std::size_t i = 0; i < to.size(); ++i)
          ASSERT_EQ(to[i], i >= shift && i < shift + bytes ? from[i - shift + 5] : kUntouched)
              << bytes << " bytes at " << shift << ", byte " << i;
      }
}

// Three lengths, and places that begin together at a cache line, apart, or nowhere near one.
TEST(Copy, ThatRefills) {
  struct Lengths {
    std::size_t taken, refill, kept;
  };
  constexpr std::byte kUntouched{0xa5};
  for (const Lengths& lengths :
       {Lengths{4096, 4096, 4096}, Lengths{4000, 3000, 2000}, Lengths{700, 900, 1300},
        Lengths{0, 640, 641}, Lengths{10, 20, 5}, Lengths{5000, 0, 0}, Lengths{5000, 5000, 0}})
    for (const std::size_t shift : {0, 1, 16})
      for (const std::size_t apart : {0, 4}) {
        const auto [taken, refill, kept] = lengths;
        const std::vector<std::byte> source = numbered(3 * 8192);
        std::vector<std::byte> place(source.begin(), source.begin() + 8192);
        std::vector<std::byte> to(8192, kUntouched), own(8192, kUntouched);
        const std::size_t other = shift + apart + (to.data() - own.data()) % 64 + 64;
        const std::byte* const next = source.data() + 8192;
        const std::byte* const mine = source.data() + 16384;
        copy_and_refill({to.data() + shift, place.data(), taken}, {place.data(), next, refill},
                        {own.data() + other, mine, kept});
        stream_fence();
        for (std::size_t i = 0; i < 8192; ++i) {
          ASSERT_EQ(to[i], i >= shift && i < shift + taken ? source[i - shift] : kUntouched) << i;
          ASSERT_EQ(place[i], i < refill ? next[i] : source[i]) << i;
          ASSERT_EQ(own[i], i >= other && i < other + kept ? mine[i - other] : kUntouched) << i;
        }
      }
}

#if defined(__x86_64__)
// copy() takes the better of the two loops that this CPU has.
TEST(Copy, OfLinesByEachLoop) {
  std::vector loops = {stream_lines_sse2};
  if (__builtin_cpu_supports("avx2")) loops.push_back(stream_lines_avx2);
  struct alignas(kCacheLine) Line {
    std::byte bytes[kCacheLine];
  };
  for (const auto loop : loops)
    for (const std::size_t bytes : {0, 64, 32704, 32768, 32832, 65536, 98304 + 4096 + 64}) {
      const std::vector<std::byte> from = numbered(bytes + 5);
      std::vector<Line> lines(bytes / kCacheLine + 1);
      std::byte* const to = lines.front().bytes;
      loop(to, from.data() + 5, bytes);
      stream_fence();
      for (std::size_t i = 0; i < bytes + kCacheLine; ++i)
        ASSERT_EQ(to[i], i < bytes ? from[i + 5] : std::byte{}) << bytes << " bytes, byte " << i;
    }
}
#endif

}}}  // namespace c10d::v0
