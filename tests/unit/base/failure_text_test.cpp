// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/failure_text.h"

#include <gtest/gtest.h>

namespace c10d { namespace {

TEST(FailureText, IsCutBetweenCharacters) {
  EXPECT_EQ(fitting("abc", 3), 3u);
  EXPECT_EQ(fitting("abc", 2), 2u);
  EXPECT_EQ(fitting("a\u00e9", 2), 1u);
  EXPECT_EQ(fitting("a\u00e9b", 3), 3u);
  EXPECT_EQ(fitting("\U0001f600", 3), 0u);
  EXPECT_EQ(fitting("\x80\x80\x80\x80\x80\x80", 5), 2u);  // no UTF-8: cut all the same
  EXPECT_EQ(fitting("", 0), 0u);
}

}}  // namespace c10d
