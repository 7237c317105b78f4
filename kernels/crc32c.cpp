// SPDX-License-Identifier: BSD-3-Clause
// A CRC is a polynomial over the bits 0 and 1, modulo P. Its words have the coefficient of x^0 in
// the upper bit, as bytes are read from their lower bit on.
#include "kernels/crc32c.h"

#include <array>
#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
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

std::uint32_t by_tables(std::uint32_t before, const void* data, std::size_t bytes) noexcept {
  const auto* at = static_cast<const std::byte*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const std::uint64_t word = load(at) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kSlices[7 - i][word >> 8 * i & 0xff];
  }
  for (; bytes != 0; ++at, --bytes)
    crc = crc >> 8 ^ kSlices[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xff];
  return ~crc;
}

#if defined(__x86_64__) || defined(__ARM_FEATURE_CRC32)

constexpr std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (; b != 0; b <<= 1, a = times_x(a))
    if (b >> 31 != 0) product ^= a;
  return product;
}

constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t power = 1u << 31, square = 1u << 30;  // x^0 and x^1
  for (; n != 0; n /= 2, square = times(square, square))
    if (n % 2 != 0) power = times(power, square);
  return power;
}

// Table i has what byte i of a CRC becomes when `bytes` zeros follow.
using Zeros = std::array<Table, 4>;
constexpr Zeros zeros(std::size_t bytes) {
  const std::uint32_t power = power_of_x(8 * bytes);
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
C10D_CRC_TARGET std::uint64_t step(std::uint64_t crc, std::uint64_t word) {
  return __builtin_ia32_crc32di(crc, word);
}
C10D_CRC_TARGET std::uint64_t step(std::uint64_t crc, std::byte byte) {
  return __builtin_ia32_crc32qi(static_cast<std::uint32_t>(crc), static_cast<unsigned char>(byte));
}
#else
#define C10D_CRC_TARGET
std::uint64_t step(std::uint64_t crc, std::uint64_t word) {
  return __crc32cd(static_cast<std::uint32_t>(crc), word);
}
std::uint64_t step(std::uint64_t crc, std::byte byte) {
  return __crc32cb(static_cast<std::uint32_t>(crc), static_cast<std::uint8_t>(byte));
}
#endif

C10D_CRC_TARGET std::uint64_t one_stream(std::uint64_t crc, const std::byte* at,
                                         std::size_t bytes) {
  for (; bytes >= 8; at += 8, bytes -= 8) crc = step(crc, load(at));
  for (; bytes != 0; ++at, --bytes) crc = step(crc, *at);
  return crc;
}

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

C10D_CRC_TARGET std::uint32_t by_instruction(std::uint32_t before, const void* data,
                                             std::size_t bytes) noexcept {
  constexpr std::size_t kLong = 4096, kShort = 256;
  const auto* at = static_cast<const std::byte*>(data);
  std::uint64_t crc = blocks<kLong>(~before, at, bytes / (3 * kLong));
  at += bytes - bytes % (3 * kLong);
  bytes %= 3 * kLong;
  crc = blocks<kShort>(crc, at, bytes / (3 * kShort));
  at += bytes - bytes % (3 * kShort);
  bytes %= 3 * kShort;
  return ~static_cast<std::uint32_t>(one_stream(crc, at, bytes));
}

#endif

#if defined(__x86_64__)
#define C10D_FOLD_TARGET __attribute__((target("sse4.2,avx512f,vpclmulqdq")))

// Factors that move a polynomial of 128 bits `bytes` further on, for each of the four in a vector:
// its first word has powers of x 64 higher than its second. The product of two words has its x^0 in
// bit 126, not 127, which reads as one x more: so the factors have one less.
template <std::size_t bytes>
C10D_FOLD_TARGET __m512i factors() {
  constexpr long long kFirst = static_cast<long long>(power_of_x(8 * bytes + 64 - 1)) << 32;
  constexpr long long kSecond = static_cast<long long>(power_of_x(8 * bytes - 1)) << 32;
  return _mm512_set4_epi64(kSecond, kFirst, kSecond, kFirst);
}

C10D_FOLD_TARGET __m512i load_vector(const std::byte* from) { return _mm512_loadu_si512(from); }

// `vector` moved by `factors`, plus `there`.
C10D_FOLD_TARGET __m512i fold(__m512i vector, __m512i factors, __m512i there) {
  constexpr int kFirsts = 0x00, kSeconds = 0x11, kSumOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(vector, factors, kFirsts),
                                   _mm512_clmulepi64_epi128(vector, factors, kSeconds), there,
                                   kSumOfThree);
}

// Bytes that are moved further on and added to those there leave the CRC as it is: so all become
// 64, which the instruction takes. Four vectors at a time keep the CPU busy; fewer bytes than these
// are left to the instruction.
C10D_FOLD_TARGET std::uint32_t by_folding(std::uint32_t before, const void* data,
                                          std::size_t bytes) noexcept {
  constexpr std::size_t kVector = sizeof(__m512i), kBlock = 4 * kVector;
  const auto* at = static_cast<const std::byte*>(data);
  if (bytes < kBlock) return ~static_cast<std::uint32_t>(one_stream(~before, at, bytes));

  __m512i sums[4];
  for (std::size_t i = 0; i < 4; ++i) sums[i] = load_vector(at + i * kVector);
  sums[0] ^= _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~before)));
  for (at += kBlock, bytes -= kBlock; bytes >= kBlock; at += kBlock, bytes -= kBlock)
    for (std::size_t i = 0; i < 4; ++i)
      sums[i] = fold(sums[i], factors<kBlock>(), load_vector(at + i * kVector));

  __m512i sum = sums[0];
  for (std::size_t i = 1; i < 4; ++i) sum = fold(sum, factors<kVector>(), sums[i]);
  for (; bytes >= kVector; at += kVector, bytes -= kVector)
    sum = fold(sum, factors<kVector>(), load_vector(at));

  std::byte folded[kVector];
  _mm512_storeu_si512(folded, sum);
  return ~static_cast<std::uint32_t>(one_stream(one_stream(0, folded, kVector), at, bytes));
}

constexpr std::array<Crc32c*, 3> kWays = {by_tables, by_instruction, by_folding};
std::size_t count_runnable() noexcept {
  if (!__builtin_cpu_supports("sse4.2")) return 1;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") ? 3 : 2;
}
#elif defined(__ARM_FEATURE_CRC32)
constexpr std::array<Crc32c*, 2> kWays = {by_tables, by_instruction};
std::size_t count_runnable() noexcept { return kWays.size(); }
#else
constexpr std::array<Crc32c*, 1> kWays = {by_tables};
std::size_t count_runnable() noexcept { return kWays.size(); }
#endif

}  // namespace

std::uint32_t crc32c(std::uint32_t before, const void* data, std::size_t bytes) noexcept {
  static Crc32c* const fastest = crc32c_ways().back();
  return fastest(before, data, bytes);
}

std::span<Crc32c* const> crc32c_ways() noexcept {
  static const std::size_t runnable = count_runnable();
  return std::span(kWays).first(runnable);
}

}}  // namespace c10d::v0
