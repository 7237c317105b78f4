// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/subject.h"

#include <gtest/gtest.h>

namespace c10d::bench { namespace {

// Cold copies go round several pairs of buffers; a larger size has fewer.
TEST(Memcpy, EachSizeStartsAtItsFirstPair) {
  const auto copy = make_memcpy_subject(0);
  Case c;
  for (const std::uint64_t mib : {17, 64, 1}) {
    c.bytes = mib << 20;
    copy->prepare(c);
    for (int i = 0; i < 3; ++i) copy->run({}, Flight::in_turn);
  }
}

}}  // namespace c10d::bench
