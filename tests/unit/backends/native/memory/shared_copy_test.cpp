// SPDX-License-Identifier: BSD-3-Clause
// Blocks that two ranks copy at once.
#include "src/backends/native/memory/shared_copy.h"

#include <unistd.h>

#include "src/backends/native/memory/cma.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 { namespace {

using native::ChunkResult;
using native::Part;

constexpr std::size_t kBlock = std::size_t{300} << 10;

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(1 + i % 251);
  return data;
}

bool kernel_writes() {
  std::uint64_t from = 1, to = 0;
  return native::write_process(getpid(), {&to, sizeof to}, &from, sizeof from) == 0 && to == 1;
}

// Both ends of one block, by turns.
class NativeShare : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernel_writes()) GTEST_SKIP() << "this kernel lets no process write";
  }
  ChunkResult give() { return native::copy_chunk(*lines_, key_, getpid(), input_.data(), kBlock); }
  void copy(const Part& part) {
    std::copy_n(input_.begin() + static_cast<std::ptrdiff_t>(part.first), part.bytes,
                output_.begin() + static_cast<std::ptrdiff_t>(part.first));
  }

  const std::unique_ptr<native::ShareLines> lines_ = std::make_unique<native::ShareLines>();
  const std::uint64_t key_ = native::share_key(3, 7);
  const std::vector<std::byte> input_ = pattern(kBlock);
  std::vector<std::byte> output_ = std::vector<std::byte>(kBlock);
};

TEST(NativeShareChunks, CoverEveryBlockOnce) {
  for (const std::size_t bytes : {native::kLeastShared, native::kLeastShared + 1, kBlock,
                                  std::size_t{4} << 20, (std::size_t{1} << 30) + 5}) {
    const native::ShareChunks chunks(bytes);
    ASSERT_LE(chunks.count(), native::kShareChunks);
    std::size_t end = 0;
    for (std::size_t i = 0; i < chunks.count(); ++i) {
      EXPECT_EQ(chunks.part(i).first, end);
      EXPECT_GT(chunks.part(i).bytes, 0u);
      end += chunks.part(i).bytes;
    }
    EXPECT_EQ(end, bytes);
  }
}

TEST_F(NativeShare, BothEndsMeet) {
  EXPECT_EQ(give(), ChunkResult::none) << "no block is open";
  native::CopyReceiver receiver(*lines_, 3, 7, output_.data(), kBlock);
  EXPECT_EQ(native::copy_chunk(*lines_, native::share_key(2, 7), getpid(), input_.data(), kBlock),
            ChunkResult::none)
      << "this block is another rank's";
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(give(), ChunkResult::copied);
    const auto part = receiver.next();
    ASSERT_TRUE(part);
    copy(*part);
  }
  while (const auto part = receiver.next()) copy(*part);
  EXPECT_EQ(give(), ChunkResult::none);
  EXPECT_TRUE(receiver.finished());
  EXPECT_EQ(receiver.refused().bytes, 0u);
  EXPECT_EQ(output_, input_);
}

TEST_F(NativeShare, WhatTheSenderCannotCopyIsLeftToTheReceiver) {
  native::CopyReceiver receiver(*lines_, 3, 7, output_.data(), kBlock);
  EXPECT_EQ(give(), ChunkResult::copied);
  const pid_t nobody = 0;
  EXPECT_EQ(native::copy_chunk(*lines_, key_, nobody, input_.data(), kBlock), ChunkResult::refused);
  while (const auto part = receiver.next()) copy(*part);
  EXPECT_TRUE(receiver.finished());
  const Part left = receiver.refused();
  EXPECT_EQ(left.first + left.bytes, kBlock);
  copy(left);
  EXPECT_EQ(output_, input_);
}

// A sender that was stopped between taking a chunk and the call that writes it.
TEST_F(NativeShare, WhoeverWasStoppedWritesNowhere) {
  TestControl control(0, 2, std::make_shared<GroupFate>());
  native::CopyReceiver receiver(*lines_, 3, 7, output_.data(), kBlock);
  const std::size_t chunk = lines_->flags.take_last(key_);
  const Part part = native::ShareChunks(kBlock).part(chunk);
  receiver.withdraw(control);
  EXPECT_NE(native::write_process(getpid(), lines_->targets[chunk], input_.data() + part.first,
                                  part.bytes),
            0);
  EXPECT_EQ(lines_->flags.take_last(key_), lines_->flags.kNone);
  EXPECT_EQ(output_, std::vector<std::byte>(kBlock));
}

// Whether or not the kernel lets a rank write into another's memory.
TEST(NativeShared, OpsAndMessagesArriveWhole) {
  const ForcedPlan forced("pull/temporal");
  for (const bool writes : {true, false})
    as_ranks(2, [&](TestRank& self) {
      if (!self.team().cost_model().host().cma) GTEST_SKIP() << "this kernel lets no process read";
      if (!writes) self.team().cannot_write();
      using Ints = std::vector<std::int32_t>;
      for (const std::size_t count : {9000u, 100'000u, 300'001u})
        for (const int root : {0, 1}) {
          const bool is_root = self.rank() == root;
          const auto filled = [&](int rank) {
            Ints values(count);
            for (std::size_t i = 0; i < count; ++i)
              values[i] = static_cast<std::int32_t>(i) * 2 + rank;
            return values;
          };
          const Ints mine = filled(self.rank());
          Ints both = filled(0), got(count), all(2 * count);
          both.insert(both.end(), count, 0);
          std::ranges::copy(filled(1), both.begin() + static_cast<std::ptrdiff_t>(count));
          self.run(Broadcast{got, mine, root});
          EXPECT_EQ(got, filled(root));
          self.run(Gather{all, mine, root});
          if (is_root) {
            EXPECT_EQ(all, both);
          }
          self.run(Scatter{got, both, root});
          EXPECT_EQ(got, mine);
          if (is_root)
            self.run(Send{mine, 1 - root, 5});
          else
            self.run(Recv{got, root, 5});
          EXPECT_EQ(got, is_root ? mine : filled(root));
        }
    });
}

}}}  // namespace c10d::v0
