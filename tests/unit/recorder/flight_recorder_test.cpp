// SPDX-License-Identifier: BSD-3-Clause
#include "src/recorder/flight_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace c10d { namespace {

Signature a_send(std::uint64_t count) {
  Signature signature;
  signature.kind = OpKind::send;
  signature.dtype = DType::boolean;
  signature.count = count;
  signature.root = 3;
  signature.tag = 0xfffffff0u;
  return signature;
}

class Recorder : public testing::Test {
 protected:
  std::uint64_t record(std::uint64_t sequence, std::int64_t now = 0) {
    return start_record(*block_, sequence, a_send(10 * sequence), now);
  }
  std::vector<Recorded> all() const {
    std::vector<Recorded> records;
    visit_records(*block_, [&](const Recorded& one) { records.push_back(one); });
    return records;
  }
  const std::unique_ptr<RankBlock> block_ = std::make_unique<RankBlock>();
};

TEST_F(Recorder, IsEmptyAtFirst) {
  EXPECT_TRUE(all().empty());
  EXPECT_EQ(last_op(*block_, 0), "nothing yet");
}

TEST_F(Recorder, KeepsWhatAnOpWas) {
  const std::uint64_t number = record(1, 5);
  ASSERT_EQ(all().size(), 1u);
  const Recorded running = all().front();
  EXPECT_EQ(running.state, Record::running);
  EXPECT_EQ(running.signature, a_send(10));
  EXPECT_EQ(running.sequence, 1u);
  EXPECT_EQ(running.start_ns, 5);
  finish_record(*block_, number, false, 9);
  EXPECT_EQ(all().front().state, Record::failed);
  EXPECT_EQ(all().front().end_ns, 9);
}

TEST_F(Recorder, KeepsWhenTheDataWasThere) {
  const auto ready_after = [&](std::optional<std::int64_t> ready_ns, std::int64_t now_ns) {
    const std::uint64_t number =
        start_record(*block_, 1, a_send(1), now_ns, kNoDeadlineNs, {.ready_ns = ready_ns});
    finish_record(*block_, number, true, now_ns + 1);
    return all().back().details.ready_ns;
  };
  EXPECT_EQ(ready_after({}, 5'000'000), std::nullopt);
  EXPECT_EQ(ready_after(2'000'000, 5'000'000), 2'000'000);
  EXPECT_EQ(ready_after(5'000'000, 5'000'000), 5'000'000);
  EXPECT_EQ(ready_after(9'000'000, 5'000'000), 5'000'000) << "not later than the call";
  const std::int64_t year = 31'536'000'000'000'000;
  EXPECT_EQ(ready_after(0, year), year - std::int64_t{0xfffffffe} * 1000) << "as much as fits";
  EXPECT_EQ(all().back().signature, a_send(1)) << "nothing else changes";
}

TEST_F(Recorder, KeepsTheCountOfThisRank) {
  const std::vector<float> input(3);
  std::vector<float> output(8);
  const std::vector<std::size_t> counts{5, 3};
  const Op op = AllGatherV{View(output), ConstView(input), counts};
  const Signature signature = signature_of(op, 2);
  start_record(*block_, 1, signature, 0, kNoDeadlineNs, details_of(op, 1, std::nullopt));
  ASSERT_EQ(all().size(), 1u);
  EXPECT_EQ(all().front().details.own_count, 3u);
  EXPECT_EQ(all().front().signature, signature) << "ranks with other counts agree on it";
}

TEST_F(Recorder, SaysWhatTheLastOpWasDoing) {
  const std::uint64_t number = record(4, 0);
  EXPECT_EQ(last_op(*block_, 1'500'000'000), "send #4, running for 1.500 s");
  finish_record(*block_, number, true, 2'000'000'000);
  EXPECT_EQ(last_op(*block_, 2'250'000'000), "send #4, ended 0.250 s ago");
}

TEST_F(Recorder, KeepsTheLastOnesOldestFirst) {
  const std::uint64_t total = 2 * kRecords + 7;
  for (std::uint64_t i = 1; i <= total; ++i) finish_record(*block_, record(i), true, 1);
  const std::vector<Recorded> records = all();
  ASSERT_EQ(records.size(), kRecords);
  for (std::size_t i = 0; i < records.size(); ++i)
    ASSERT_EQ(records[i].sequence, total - kRecords + 1 + i);
}

TEST_F(Recorder, AnOpThatEndsAfterItsRecordIsGoneHarmsNoOther) {
  const std::uint64_t early = record(1);
  for (std::uint64_t i = 2; i <= kRecords + 1; ++i) record(i);
  finish_record(*block_, early, false, 1);
  for (const Recorded& one : all()) EXPECT_EQ(one.state, Record::running) << one.sequence;
}

TEST_F(Recorder, IsBusyWhileAnOpRuns) {
  EXPECT_FALSE(is_busy(*block_));
  const std::uint64_t number = record(1);
  EXPECT_TRUE(is_busy(*block_));
  finish_record(*block_, number, true, 1);
  EXPECT_FALSE(is_busy(*block_));
  block_->pending = 1;  // an async op from before
  EXPECT_TRUE(is_busy(*block_));
}

TEST(Clock, TheCounterKeepsUpWithIt) {
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  constexpr std::int64_t kMillisecond = 1'000'000;
  const std::int64_t start = now();
  calibrate_counter();
  while (now() - start < 6 * kMillisecond) {
  }
  calibrate_counter();
  for (std::int64_t before = start; before - start < 60 * kMillisecond;) {
    before = now();
    const std::int64_t read = steady_ns();
    ASSERT_GE(read, before - kMillisecond);
    ASSERT_LE(read, now() + kMillisecond);
  }
}

TEST_F(Recorder, MayBeReadWhileItsOwnerWrites) {
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      for (const Recorded& one : all()) EXPECT_EQ(one.signature.kind, OpKind::send);
      EXPECT_FALSE(last_op(*block_, steady_ns()).empty());
    }
  });
  for (std::uint64_t i = 1; i <= 20 * kRecords; ++i) finish_record(*block_, record(i), true, 1);
  done = true;
  reader.join();
}

}}  // namespace c10d
