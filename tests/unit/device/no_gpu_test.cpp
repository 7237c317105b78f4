// SPDX-License-Identifier: BSD-3-Clause
// c10d/cuda.h where the library that C10D_CUDA_LIBRARY names is none, or sees no GPU. The word that
// its reason must hold is the argument.
#include <gmock/gmock.h>

#include "c10d/cuda.h"
#include "c10d/error.h"

namespace c10d { inline namespace v0 { namespace {

std::string expected_reason;

TEST(NoGpu, IsSaidWithItsReason) {
  EXPECT_EQ(cuda::device_count(), 0);
  EXPECT_THAT(cuda::why_no_gpu(), testing::HasSubstr(expected_reason));
  EXPECT_NE(cuda::driver_info().path, "");
  try {
    const auto memory = cuda::device_allocate(8, 0);
    FAIL() << "memory of no GPU";
  } catch (const DistBackendError& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr(expected_reason));
  }
  EXPECT_THROW(cuda::device_info(0), DistBackendError);
  EXPECT_THROW(cuda::Stream(0), DistBackendError);
  EXPECT_THROW(cuda::Event(0), DistBackendError);
}

}}}  // namespace c10d::v0

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  c10d::expected_reason = argv[1];
  return RUN_ALL_TESTS();
}
