// SPDX-License-Identifier: BSD-3-Clause
// A CRC is a polynomial over the bits 0 and 1, modulo P. Its words have the coefficient of x^0 in
// the upper bit, as bytes are read from their lower bit on.
#include "kernels/crc32c.h"

#include <array>
#include <bit>

#if defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace c10d { inline namespace v0 {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // P without x^32

using Table = std::array<std::uint32_t, 256>;  // by the value of a byte

constexpr std::uint32_t times_x(std::uint32_t a) {
  return a >> 1 ^ ((a & 1) != 0 ? kPolynomial : 0);
}

// Slicing: table i has what a byte becomes with i bytes behind it.
constexpr std::array<Table, 8> make_slices() {
  std::array<Table, 8> slices{};
  for (std::uint32_t value = 0; value < 256; ++value) {
    std::uint32_t crc = value;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    slices[0][value] = crc;
  }
  for (std::size_t i = 1; i < 8; ++i)
    for (std::size_t value = 0; value < 256; ++value) {
      const std::uint32_t crc = slices[i - 1][value];
      slices[i][value] = crc >> 8 ^ slices[0][crc & 0xff];
    }
  return slices;
}
constexpr std::array<Table, 8> kSlices = make_slices();

std::uint64_t load(const std::byte* from) {
  std::uint64_t word;
  __builtin_memcpy(&word, from, sizeof word);
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

std::uint32_t by_tables(std::uint32_t crc, const std::byte* at, std::size_t bytes) {
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const std::uint64_t word = load(at) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kSlices[7 - i][word >> 8 * i & 0xff];
  }
  for (; bytes != 0; ++at, --bytes)
    crc = crc >> 8 ^ kSlices[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xff];
  return crc;
}

#if defined(__x86_64__) || defined(__ARM_FEATURE_CRC32)

constexpr std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (; b != 0; b <<= 1, a = times_x(a))
    if (b >> 31 != 0) product ^= a;
  return product;
}

// Table i has what byte i of a CRC becomes when `bytes` zeros follow.
using Zeros = std::array<Table, 4>;
constexpr Zeros zeros(std::size_t bytes) {
  std::uint32_t power = 1u << 31, square = 1u << (31 - 8);  // x^0 and x^8
  for (; bytes != 0; bytes /= 2, square = times(square, square))
    if (bytes % 2 != 0) power = times(power, square);
  Zeros tables{};
  for (std::size_t i = 0; i < 4; ++i)
    for (std::uint32_t value = 1; value < 256; ++value) {
      const std::uint32_t lowest = value & (~value + 1);
      tables[i][value] = lowest == value ? times(power, value << 8 * i)
                                         : tables[i][lowest] ^ tables[i][value ^ lowest];
    }
  return tables;
}

std::uint32_t followed_by(const Zeros& tables, std::uint64_t crc) {
  return tables[0][crc & 0xff] ^ tables[1][crc >> 8 & 0xff] ^ tables[2][crc >> 16 & 0xff] ^
         tables[3][crc >> 24 & 0xff];
}

#if defined(__x86_64__)
#define C10D_CRC_TARGET __attribute__((target("sse4.2")))
bool has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}
C10D_CRC_TARGET std::uint64_t step(std::uint64_t crc, std::uint64_t word) {
  return __builtin_ia32_crc32di(crc, word);
}
C10D_CRC_TARGET std::uint64_t step(std::uint64_t crc, std::byte byte) {
  return __builtin_ia32_crc32qi(static_cast<std::uint32_t>(crc), static_cast<unsigned char>(byte));
}
#else
#define C10D_CRC_TARGET
bool has_instruction() { return true; }
std::uint64_t step(std::uint64_t crc, std::uint64_t word) {
  return __crc32cd(static_cast<std::uint32_t>(crc), word);
}
std::uint64_t step(std::uint64_t crc, std::byte byte) {
  return __crc32cb(static_cast<std::uint32_t>(crc), static_cast<std::uint8_t>(byte));
}
#endif

// An instruction takes three cycles, and one can start in each: three streams of bytes keep the CPU
// busy. What they find is put together behind each block: long ones make that cheap, short ones
// leave few bytes to a single stream.
template <std::size_t stream>
C10D_CRC_TARGET std::uint64_t blocks(std::uint64_t crc, const std::byte* at, std::size_t n) {
  static constexpr Zeros kZeros = zeros(stream);
  for (; n != 0; at += 3 * stream, --n) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < stream; i += 8) {
      crc = step(crc, load(at + i));
      second = step(second, load(at + stream + i));
      third = step(third, load(at + 2 * stream + i));
    }
    crc = followed_by(kZeros, followed_by(kZeros, crc) ^ second) ^ third;
  }
  return crc;
}

C10D_CRC_TARGET std::uint32_t by_instruction(std::uint32_t before, const std::byte* at,
                                             std::size_t bytes) {
  constexpr std::size_t kLong = 4096, kShort = 256;
  std::uint64_t crc = blocks<kLong>(before, at, bytes / (3 * kLong));
  at += bytes - bytes % (3 * kLong);
  bytes %= 3 * kLong;
  crc = blocks<kShort>(crc, at, bytes / (3 * kShort));
  at += bytes - bytes % (3 * kShort);
  bytes %= 3 * kShort;
  for (; bytes >= 8; at += 8, bytes -= 8) crc = step(crc, load(at));
  for (; bytes != 0; ++at, --bytes) crc = step(crc, *at);
  return static_cast<std::uint32_t>(crc);
}

#endif

}  // namespace

std::uint32_t crc32c(std::uint32_t before, const void* data, std::size_t bytes) noexcept {
#if defined(__x86_64__) || defined(__ARM_FEATURE_CRC32)
  if (has_instruction())
    return ~by_instruction(~before, static_cast<const std::byte*>(data), bytes);
#endif
  return crc32c_by_tables(before, data, bytes);
}

std::uint32_t crc32c_by_tables(std::uint32_t before, const void* data, std::size_t bytes) noexcept {
  return ~by_tables(~before, static_cast<const std::byte*>(data), bytes);
}

}}  // namespace c10d::v0
