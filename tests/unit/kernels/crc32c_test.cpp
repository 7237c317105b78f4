// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace c10d { namespace {

using Bytes = std::vector<unsigned char>;

// One bit at a time.
std::uint32_t reference(std::uint32_t before, const unsigned char* data, std::size_t bytes) {
  std::uint32_t crc = ~before;
  for (std::size_t i = 0; i < bytes; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

Bytes random_bytes(std::size_t count) {
  std::mt19937 random(11);
  Bytes bytes(count);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

class Crc32cTest : public testing::TestWithParam<Crc32c*> {};

TEST_P(Crc32cTest, HasTheKnownValues) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(GetParam()(0, digits.data(), digits.size()), 0xe3069283u);
  EXPECT_EQ(GetParam()(0, nullptr, 0), 0u);
  // RFC 3720, B.4
  Bytes bytes(32);
  EXPECT_EQ(GetParam()(0, bytes.data(), 32), 0x8a9136aau);
  bytes.assign(32, 0xff);
  EXPECT_EQ(GetParam()(0, bytes.data(), 32), 0x62a8ab43u);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  EXPECT_EQ(GetParam()(0, bytes.data(), 32), 0x46dd794eu);
  std::iota(bytes.rbegin(), bytes.rend(), static_cast<unsigned char>(0));
  EXPECT_EQ(GetParam()(0, bytes.data(), 32), 0x113fdb5cu);
}

TEST_P(Crc32cTest, EveryLengthAndStart) {
  constexpr std::size_t kMost = 4096;
  const Bytes bytes = random_bytes(15 + kMost);
  for (std::uint32_t start = 0; start < 16; ++start) {
    const std::uint32_t before = start * 0x11111111u;
    std::uint32_t expected = before;
    for (std::size_t length = 0; length <= kMost; ++length) {
      ASSERT_EQ(GetParam()(before, &bytes[start], length), expected)
          << "start " << start << " length " << length;
      if (length < kMost) expected = reference(expected, &bytes[start + length], 1);
    }
  }
}

TEST_P(Crc32cTest, LongOnes) {
  const Bytes bytes = random_bytes(100'003);
  for (const std::size_t length : {12'287, 12'288, 12'289, 24'576, 65'536, 100'000})
    for (const std::size_t start : {0, 3})
      ASSERT_EQ(GetParam()(7, &bytes[start], length), reference(7, &bytes[start], length))
          << "start " << start << " length " << length;
}

TEST_P(Crc32cTest, PartsAreAsTheWhole) {
  const Bytes bytes = random_bytes(3000);
  const std::uint32_t whole = reference(0, bytes.data(), bytes.size());
  EXPECT_EQ(crc32c(0, bytes.data(), bytes.size()), whole);
  for (std::size_t split = 0; split <= bytes.size(); ++split) {
    const std::uint32_t first = GetParam()(0, bytes.data(), split);
    ASSERT_EQ(GetParam()(first, bytes.data() + split, bytes.size() - split), whole)
        << "split " << split;
  }
}

std::string way(const testing::TestParamInfo<Crc32c*>& crc) {
  return std::array{"by_tables", "by_instruction", "by_folding"}[crc.index];
}

INSTANTIATE_TEST_SUITE_P(Ways, Crc32cTest, testing::ValuesIn(crc32c_ways()), way);

}}  // namespace c10d
