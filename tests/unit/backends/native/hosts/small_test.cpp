// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/small.h"

#include <gtest/gtest.h>

#include <vector>

namespace c10d::native { namespace {

TEST(Small, NoBitOfWhatIsGivenChangesUnseen) {
  for (const std::size_t bytes : {1, 8, 63}) {
    std::vector<std::byte> block(bytes + kSealBytes, std::byte{0x5a});
    seal(block);
    EXPECT_TRUE(is_sealed(block));
    for (std::size_t bit = 0; bit < 8 * block.size(); ++bit) {
      block[bit / 8] ^= std::byte{1} << bit % 8;
      EXPECT_FALSE(is_sealed(block)) << "bit " << bit << " of " << block.size() << " bytes";
      block[bit / 8] ^= std::byte{1} << bit % 8;
    }
  }
}

}}  // namespace c10d::native
