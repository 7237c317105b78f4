// SPDX-License-Identifier: BSD-3-Clause
// What allocate() of nccl gives: --came=TEXT is what description() must say of it on one rank at
// least; without, nothing. Ranks are threads, each with a GPU of its own.
#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <vector>

#include "c10d/cuda.h"
#include "tests/contract/ranks.h"

namespace c10d::nccl_test { namespace {

using testing::HasSubstr;

std::string g_came;

std::vector<float> numbers_of(const Buffer<float>& memory, const cuda::Stream& stream) {
  std::vector<float> numbers(memory.size());
  cuda::copy(numbers, memory, stream);
  stream.synchronize();
  return numbers;
}

TEST(Memory, IsOfTheKindThatDescriptionSays) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 1000;
  std::atomic<int> said{0};
  std::vector<Buffer<float>> outlives(kRanks);
  contract::run_ranks("nccl", kRanks, [&](ProcessGroup& group) {
    const Device gpu = group.device();
    const cuda::Stream stream(gpu.index);
    const CallOptions on{.stream = stream};
    EXPECT_THAT(group.description(), testing::Not(HasSubstr("allocate()")));
    const auto rank = static_cast<std::size_t>(group.rank());
    {
      const auto first = group.allocate<float>(kCount, gpu), second = group.allocate<float>(1, gpu);
      const std::string came = group.description();
      if (g_came.empty())
        EXPECT_THAT(came, testing::Not(HasSubstr("allocate()")));
      else
        EXPECT_THAT(came, HasSubstr("; allocate(): "));
      if (came.find(g_came) != std::string::npos) ++said;
      EXPECT_EQ(numbers_of(first, stream), std::vector<float>(kCount, 0));
      const std::vector<float> mine(kCount, static_cast<float>(group.rank() + 1));
      cuda::copy(first, mine, stream);
      group.all_reduce(first, on);
      outlives[rank] = group.allocate<float>(kCount, gpu);  // it waits for the op
      group.all_reduce(outlives[rank], first, ReduceOp::max, on);
      EXPECT_EQ(numbers_of(outlives[rank], stream), std::vector<float>(kCount, 6));
      EXPECT_EQ(numbers_of(second, stream), std::vector<float>(1, 0));
      group.barrier();
    }
    EXPECT_EQ(group.allocate<float>(0, gpu).size(), 0U);
    group.barrier();
    group.shutdown(contract::kTimeout);
    EXPECT_EQ(numbers_of(outlives[rank], stream), std::vector<float>(kCount, 6));
  });
  EXPECT_GE(said, 1) << g_came;
}

}}  // namespace c10d::nccl_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (const std::string argument = argv[i]; argument.starts_with("--came="))
      c10d::nccl_test::g_came = argument.substr(7);
  return RUN_ALL_TESTS();
}
