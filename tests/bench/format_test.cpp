// SPDX-License-Identifier: BSD-3-Clause
#include "bench/text/format.h"

#include <gtest/gtest.h>

#include "bench/report/banner.h"

namespace c10d::bench { namespace {

TEST(Format, Bytes) {
  EXPECT_EQ(bytes_text(8), "8 B");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(16 << 20), "16 MiB");
}

TEST(Format, MicrosecondsKeepAboutThreeDigits) {
  EXPECT_EQ(microseconds_text(0.412), "0.41");
  EXPECT_EQ(microseconds_text(9.999), "10.0");
  EXPECT_EQ(microseconds_text(192.84), "192.8");
  EXPECT_EQ(microseconds_text(4112.3), "4112");
}

TEST(Format, RatiosKeepThreeDigits) {
  EXPECT_EQ(ratio_text(470.4), "470");
  EXPECT_EQ(ratio_text(11.34), "11.3");
  EXPECT_EQ(ratio_text(1), "1.00");
  EXPECT_EQ(ratio_text(0.0512), "0.051");
}

TEST(Format, WidthCountsCodePoints) {
  EXPECT_EQ(display_width("a·b"), 3U);
  EXPECT_EQ(pad_left("·", 3), "  ·");
  EXPECT_EQ(to_ascii("a · b"), "a | b");
}

TEST(Parse, Bytes) {
  EXPECT_EQ(parse_bytes("8"), 8U);
  EXPECT_EQ(parse_bytes("4K"), 4096U);
  EXPECT_EQ(parse_bytes("16M"), std::uint64_t{16} << 20);
  EXPECT_EQ(parse_bytes("16MiB"), std::uint64_t{16} << 20);
  EXPECT_EQ(parse_bytes("1.5K"), 1536U);
  for (const char* bad : {"", "K", "-1", "1X", "0.3", "1e9", "4KK", "99999999T"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
}

TEST(Parse, SecondsAndFractions) {
  EXPECT_DOUBLE_EQ(*parse_seconds("0.05s"), 0.05);
  EXPECT_DOUBLE_EQ(*parse_seconds("200ms"), 0.2);
  EXPECT_DOUBLE_EQ(*parse_seconds("20us"), 20e-6);
  EXPECT_DOUBLE_EQ(*parse_seconds("2m"), 120);
  for (const char* bad : {"", "s", "1h", "-1s"}) EXPECT_FALSE(parse_seconds(bad)) << bad;
  EXPECT_DOUBLE_EQ(*parse_fraction("5%"), 0.05);
  EXPECT_FALSE(parse_fraction("5 %"));
}

}}  // namespace c10d::bench
