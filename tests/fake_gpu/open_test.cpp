// SPDX-License-Identifier: BSD-3-Clause
// The tables of the driver and of NCCL where there is none, a part of one, or something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/backends/nccl/nccl.h"
#include "src/device/driver.h"

namespace c10d { namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string built(const char* name) { return std::string(C10D_TEST_LIBRARIES) + name; }

TEST(Driver, ThatIsNotThereSaysWhere) {
  const driver::Api api = driver::open_api("/nowhere/libcuda.so.1");
  EXPECT_FALSE(api);
  EXPECT_EQ(api.path, "/nowhere/libcuda.so.1");
  EXPECT_THAT(api.why, StartsWith("no CUDA driver: /nowhere/libcuda.so.1: "));
  EXPECT_EQ(api.init, nullptr);
}

TEST(Driver, ThatIsAnotherLibrary) {
  EXPECT_EQ(driver::open_api("libc.so.6").why, "libc.so.6 is no CUDA driver: it has no cuInit");
}

TEST(Driver, ThatIsTooOldNamesWhatItLacks) {
  const driver::Api api = driver::open_api(built("libhalf_cuda.so"));
  EXPECT_THAT(api.why, HasSubstr("libhalf_cuda.so is too old a CUDA driver, it lacks "));
  EXPECT_THAT(api.why, HasSubstr("cuMemAlloc_v2"));
  EXPECT_THAT(api.why, Not(HasSubstr("cuInit")));
}

TEST(Nccl, ThatIsNotThereNamesThePackage) {
  const nccl::Api api = nccl::open_api("/nowhere/libnccl.so.2");
  EXPECT_FALSE(api);
  EXPECT_THAT(api.why, StartsWith("no NCCL: /nowhere/libnccl.so.2: "));
  EXPECT_THAT(api.why, HasSubstr("nvidia-nccl-cu13"));
}

TEST(Nccl, ThatIsAnotherLibrary) {
  EXPECT_EQ(nccl::open_api("libc.so.6").why, "libc.so.6 is no NCCL: it has no ncclGetVersion");
}

TEST(Nccl, ThatIsTooOldSaysItsVersion) {
  EXPECT_THAT(nccl::open_api(built("libnccl_2_17_1.so")).why,
              HasSubstr("libnccl_2_17_1.so is NCCL 2.17.1: install 2.18 or newer"));
  EXPECT_THAT(nccl::open_api(built("libnccl_2_8_4.so")).why, HasSubstr("is NCCL 2.8.4: "));
}

TEST(Nccl, ThatLacksWhatItsVersionHas) {
  const nccl::Api api = nccl::open_api(built("libnccl_2_18_3.so"));
  EXPECT_THAT(api.why, HasSubstr("says it is NCCL 2.18.3, but lacks "));
  EXPECT_THAT(api.why, HasSubstr("ncclAllReduce"));
  EXPECT_THAT(api.why, Not(HasSubstr("ncclGroupStart,")));
  EXPECT_THAT(api.why, Not(HasSubstr("ncclCommRevoke"))) << "2.18 has none";
}

TEST(Nccl, VersionsAreSaidAsTheirPackagesSayThem) {
  EXPECT_EQ(nccl::version_text(22809), "2.28.9");
  EXPECT_EQ(nccl::version_text(21803), "2.18.3");
  EXPECT_EQ(nccl::version_text(2804), "2.8.4");
}

}}  // namespace c10d
