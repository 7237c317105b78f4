// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <vector>

#include "kernels/copy.h"
#include "kernels/copy_lines.h"

namespace c10d::inline v0 {
namespace {

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

#if defined(__x86_64__)
// copy() takes the better of the two loops that this CPU has.
TEST(Copy, OfLinesByEachLoop) {
  std::vector loops = {stream_lines_sse2};
  if (__builtin_cpu_supports("avx512f")) loops.push_back(stream_lines_avx512);
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

}  // namespace
}  // namespace c10d::inline v0
