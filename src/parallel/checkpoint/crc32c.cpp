// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/crc32c.h"

#include <array>
#include <cstring>

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

std::uint32_t crc_by_table(std::uint32_t crc, const std::byte* at, std::size_t count) noexcept {
  for (; count > 0; --count, ++at)
    crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<std::uint32_t>(*at)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc_by_cpu(std::uint32_t crc, const std::byte* at,
                                                           std::size_t count) noexcept {
  std::uint64_t wide = crc;
  for (; count >= 8; count -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return crc_by_table(static_cast<std::uint32_t>(wide), at, count);
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~crc_by_cpu(~0u, bytes.data(), bytes.size());
#endif
  return ~crc_by_table(~0u, bytes.data(), bytes.size());
}

}}}  // namespace c10d::v0::parallel
