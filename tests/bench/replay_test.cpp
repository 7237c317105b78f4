// SPDX-License-Identifier: BSD-3-Clause
// From a flight record to a list of ops: what is read, aligned, cut into steps, and refused.
#include "bench/commands/replay.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/model/job_record.h"
#include "bench/model/replay_plan.h"
#include "c10d/error.h"
#include "tests/temporary_directory.h"

namespace c10d::bench { namespace {

RecordedOp all_reduce_of(std::uint64_t sequence, std::uint64_t count, double start, double end) {
  return {.sequence = sequence,
          .kind = OpKind::all_reduce,
          .dtype = DType::f32,
          .redop = ReduceOp::sum,
          .count = count,
          .root = -1,
          .ok = true,
          .start = start,
          .end = end};
}

RecordedOp a_message(OpKind kind, int peer, std::uint32_t tag, std::uint64_t number, double start,
                     double end) {
  RecordedOp op = all_reduce_of(number, 8, start, end);
  op.kind = kind;
  op.root = peer;
  op.tag = tag;
  op.message = number;
  return op;
}

// Two ranks that pass a message to and fro, steps of 1 s: rank 0 sends at 0 s and receives the
// answer from 0.3 s on; rank 1 receives from 0.1 s on and answers at 0.5 s. A message takes 0.05 s
// from when both ends are there.
JobRecord to_and_fro(int steps) {
  RecordedGroup group{.name = "world", .size = 2, .ranks = {}};
  for (int rank = 0; rank < 2; ++rank)
    group.ranks.push_back({.rank = rank, .pid = 100 + rank, .host = "here", .ops = {}});
  for (int step = 0; step < steps; ++step) {
    const double at = 1000 + step;
    const auto number = static_cast<std::uint64_t>(step) + 1;
    auto& zero = group.ranks[0].ops;
    auto& one = group.ranks[1].ops;
    zero.push_back(a_message(OpKind::send, 1, 7, number, at, at + 0.15));
    one.push_back(a_message(OpKind::recv, 0, 7, number, at + 0.1, at + 0.15));
    zero.push_back(a_message(OpKind::recv, 1, 8, number, at + 0.3, at + 0.55));
    one.push_back(a_message(OpKind::send, 0, 8, number, at + 0.5, at + 0.55));
  }
  for (RecordedRank& rank : group.ranks)
    for (std::size_t i = 0; i < rank.ops.size(); ++i) rank.ops[i].sequence = i + 1;
  return {{group}};
}

// Two ranks, `steps` steps of 1 s: all_reduces of 8 and 16 elements for 0.1 s each, the second 0.2
// s after the first; rank 1 comes to each 0.02 s later.
JobRecord two_ranks(int steps) {
  RecordedGroup group{.name = "world", .size = 2, .ranks = {}};
  for (int rank = 0; rank < 2; ++rank) {
    RecordedRank one{.rank = rank, .pid = 100 + rank, .host = "here", .ops = {}};
    for (int step = 0; step < steps; ++step) {
      const double start = 1000 + step + 0.02 * rank, end = 1000 + step + 0.1;
      const auto sequence = 2 * static_cast<std::uint64_t>(step) + 1;
      one.ops.push_back(all_reduce_of(sequence, 8, start, end));
      one.ops.push_back(all_reduce_of(sequence + 1, 16, start + 0.3, end + 0.3));
    }
    group.ranks.push_back(std::move(one));
  }
  return {{group}};
}

std::string refusal(const JobRecord& record) {
  try {
    plan_replay(record, Place::in);
    return "none";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

std::string refusal(std::string_view text) {
  try {
    parse_job_record(text, "file");
    return "none";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(Replay, FindsStepsGapsAndTimes) {
  const ReplayPlan plan = plan_replay(two_ranks(5), Place::in);
  EXPECT_TRUE(plan.has_steps);
  EXPECT_EQ(plan.ranks, 2);
  ASSERT_EQ(plan.ops_per_step, 2U);
  EXPECT_EQ(plan.steps(), 5U);
  EXPECT_EQ(plan.ops[0].as_case.bytes, 32U) << "a step starts behind the longest gap";
  EXPECT_EQ(plan.ops[1].as_case.bytes, 64U);
  EXPECT_EQ(plan.slots.size(), 2U);
  EXPECT_FALSE(plan.ops[0].joined_before) << "no other op came before its end: it blocked";
  EXPECT_NEAR(plan.ops[1].gaps[0], 0.2, 1e-9);
  EXPECT_NEAR(plan.ops[1].gaps[1], 0.22, 1e-9);
  EXPECT_NEAR(plan.ops[2].gaps[0], 0.6, 1e-9);
  for (const double step : communication_by_step(plan, recorded_spans(plan)))
    EXPECT_NEAR(step, 0.16, 1e-9) << "without the wait for rank 1";
  const ReplayPlan last = last_steps(plan, 2);
  EXPECT_EQ(last.steps(), 2U);
  EXPECT_EQ(last.ops[0].call.sequence, 7U);
}

TEST(Replay, WhatIsOutsideOfStepsIsLeftOut) {
  JobRecord record = two_ranks(5);
  for (RecordedRank& rank : record.groups[0].ranks) {
    RecordedOp other = all_reduce_of(11, 99, 2000, 2001);
    rank.ops.push_back(other);
    other = all_reduce_of(12, 8, 2002, 2003);
    other.ok = false;  // it failed, or runs
    rank.ops.push_back(other);
  }
  const ReplayPlan plan = plan_replay(record, Place::out);
  EXPECT_EQ(plan.steps(), 5U);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_EQ(plan.notes[0], "1 ops that belong to no whole step are left out");
}

TEST(Replay, WhatDoesNotRepeatIsOneStep) {
  const ReplayPlan plan = plan_replay(two_ranks(1), Place::in);
  EXPECT_FALSE(plan.has_steps);
  EXPECT_EQ(plan.ops_per_step, 2U);
  EXPECT_EQ(plan.steps(), 1U);
}

// Calls as numbers: epochs of twenty steps 1 2 2 3, each with a 9 at its end.
TEST(Replay, FindsStepsInEpochs) {
  std::vector<std::uint64_t> calls{7, 8};  // before training
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int step = 0; step < 20; ++step) calls.insert(calls.end(), {1, 2, 2, 3});
    calls.push_back(9);
  }
  calls.insert(calls.end(), {1, 2});  // the record ends inside a step
  const Repetition found = find_repetition(calls);
  EXPECT_EQ(found.period, 4U);
  EXPECT_EQ(find_steps(calls, found.first, found.period).size(), 60U);
  EXPECT_EQ(find_repetition(calls, 81).period, 81U) << "asked for";
  EXPECT_EQ(find_repetition(calls, 5).period, 0U);
  EXPECT_EQ(find_repetition(std::vector<std::uint64_t>{1, 2, 1, 2, 1}).period, 0U) << "twice only";
  EXPECT_EQ(find_repetition({}).period, 0U);
}

TEST(Replay, OpsInFlightTogetherAreAsync) {
  JobRecord record = two_ranks(4);
  for (RecordedRank& rank : record.groups[0].ranks)
    for (std::size_t i = 0; i < rank.ops.size(); i += 2) rank.ops[i].end += 0.25;
  const ReplayPlan plan = plan_replay(record, Place::in);
  ASSERT_EQ(plan.ops_per_step, 2U);
  EXPECT_EQ(plan.ops[0].joined_before, 2U);
  EXPECT_FALSE(plan.ops[1].joined_before);
  EXPECT_NEAR(communication_by_step(plan, recorded_spans(plan))[0], 0.38, 1e-9)
      << "time in which both ran counts once";
}

// Rank 0 has 3 elements in the first op of a step, rank 1 has none.
TEST(Replay, CountsOfTheRanksAreThoseOfTheOp) {
  JobRecord record = two_ranks(4);
  for (RecordedRank& rank : record.groups[0].ranks)
    for (std::size_t i = 0; i < rank.ops.size(); i += 2) {
      rank.ops[i].kind = OpKind::reduce_scatter_v;
      rank.ops[i].count = rank.rank == 0 ? 3 : 0;
    }
  const ReplayPlan plan = plan_replay(record, Place::in);
  ASSERT_EQ(plan.ops_per_step, 2U);
  EXPECT_EQ(plan.ops[0].as_case.counts, (std::vector<std::uint64_t>{3, 0}));
  EXPECT_EQ(plan.ops[0].as_case.bytes, 12U);
  EXPECT_EQ(shards_before(plan.ops[0].as_case, 2, 2), 3U);
  record.groups[0].ranks[1].ops[4].count = 7;  // another call, of which there is one only
  EXPECT_EQ(plan_replay(record, Place::in).has_steps, false);
}

// The program has the data of the second op 0.05 s after the start of the first, which runs until
// 0.25 s after the second could have begun.
TEST(Replay, WhatWasKeptBackIsDueWhenItWasReady) {
  JobRecord record = two_ranks(4);
  for (RecordedRank& rank : record.groups[0].ranks)
    for (std::size_t i = 1; i < rank.ops.size(); i += 2)
      rank.ops[i].ready = rank.ops[i - 1].start + 0.05;
  const ReplayPlan plan = plan_replay(record, Place::in);
  ASSERT_EQ(plan.ops_per_step, 2U);
  EXPECT_FALSE(plan.ops[2].due[0]) << "not said";
  const std::optional<Due>& due = plan.ops[3].due[0];
  ASSERT_TRUE(due);
  EXPECT_NEAR(due->at, 0.65, 1e-9) << "0.6 s from the end of the step before to the first op";
  EXPECT_NEAR(due->beside, 0.05, 1e-9);
  EXPECT_NEAR(due->late, 0.2, 1e-9) << "not the time in which the first op ran";
  EXPECT_FALSE(computed_before(plan, 2, 0, 1));
  EXPECT_NEAR(*computed_before(plan, 3, 0, 1), 0.65, 1e-9) << "the rest comes later";
  EXPECT_NEAR(*computed_before(plan, 3, 0, 0.62), 0.62, 1e-9) << "slower beside the op";
  EXPECT_NEAR(*computed_before(plan, 3, 0, 0.5), 0.5, 1e-9);
}

TEST(Replay, MessagesAreTwoEndsEach) {
  const ReplayPlan plan = plan_replay(to_and_fro(5), Place::in);
  ASSERT_EQ(plan.ops_per_step, 4U);
  EXPECT_EQ(plan.steps(), 5U);
  std::vector<std::string> calls;
  for (std::size_t i = 0; i < 4; ++i) calls.push_back(text_of(plan.ops[i].call));
  EXPECT_EQ(calls, (std::vector<std::string>{
                       "send(f32 x 8, to 1, tag 7)", "recv(f32 x 8, from 0, tag 7)",
                       "send(f32 x 8, to 0, tag 8)", "recv(f32 x 8, from 1, tag 8)"}));
  EXPECT_TRUE(takes_part(plan.ops[1], 1) && !takes_part(plan.ops[1], 0));
  EXPECT_EQ(plan.ops[0].message, plan.ops[1].message);
  for (const ReplayOp& op : plan.ops) EXPECT_FALSE(op.joined_before) << text_of(op.call);
  EXPECT_NEAR(plan.ops[3].gaps[0], 0.15, 1e-9);
  EXPECT_NEAR(plan.ops[2].gaps[1], 0.35, 1e-9);
  EXPECT_EQ(plan.ops[2].gaps[0], 0) << "rank 0 has no part in it";
  EXPECT_NEAR(communication_by_step(plan, recorded_spans(plan))[0], 0.1, 1e-9)
      << "from the later end's start on";
}

TEST(Replay, ARingMayLackTheFirstMessages) {
  JobRecord record = to_and_fro(6);
  auto& ops = record.groups[0].ranks[1].ops;
  ops.erase(ops.begin(), ops.begin() + 3);
  const ReplayPlan plan = plan_replay(record, Place::in);
  EXPECT_EQ(plan.ops_per_step, 4U);
  EXPECT_EQ(plan.steps(), 4U);
  for (const ReplayOp& op : plan.ops) EXPECT_EQ(op.call.message > 2, true) << op.call.message;
}

// Both send first, and the sends end before the receives begin: on another backend they may wait.
TEST(Replay, ASendThatMayWaitForItsReceiveIsAsync) {
  JobRecord record = to_and_fro(4);
  auto& ops = record.groups[0].ranks[1].ops;
  for (std::size_t i = 0; i < ops.size(); i += 2) {
    const double at = ops[i].start - 0.1;
    std::swap(ops[i], ops[i + 1]);
    std::swap(ops[i].sequence, ops[i + 1].sequence);
    ops[i].start = at;
    ops[i].end = at + 0.05;
    record.groups[0].ranks[0].ops[i].end = at + 0.05;
    ops[i + 1].start = at + 0.3;
    ops[i + 1].end = at + 0.4;
  }
  const ReplayPlan plan = plan_replay(record, Place::in);
  ASSERT_EQ(plan.ops_per_step, 4U);
  for (const ReplayOp& op : plan.ops)
    EXPECT_EQ(op.joined_before.has_value(), op.call.kind == OpKind::send) << text_of(op.call);
}

TEST(Replay, MessagesThatCannotBeMatchedAreLeftOut) {
  const auto note_of = [](const std::function<void(RecordedOp&)>& change) {
    JobRecord record = two_ranks(3);
    JobRecord messages = to_and_fro(3);
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (RecordedOp& op : messages.groups[0].ranks[rank].ops) {
        change(op);
        record.groups[0].ranks[rank].ops.push_back(op);
      }
    const ReplayPlan plan = plan_replay(record, Place::in);
    EXPECT_EQ(plan.ops_per_step, 2U) << "the all_reduces";
    return plan.notes.empty() ? "" : plan.notes[0];
  };
  EXPECT_NE(note_of([](RecordedOp& op) {
              if (op.kind == OpKind::recv) op.message = 0;
            }).find("a recv is from any rank"),
            std::string::npos);
  EXPECT_NE(note_of([](RecordedOp& op) {
              if (op.kind == OpKind::recv && op.message == 2) op.tag = 9;
            }).find("in another order"),
            std::string::npos);
  EXPECT_NE(note_of([](RecordedOp& op) {
              if (op.kind == OpKind::recv) op.count = 7;
            }).find("does not fit"),
            std::string::npos);
  EXPECT_NE(note_of([](RecordedOp& op) { op.root = 77; }).find("peer"), std::string::npos);
}

TEST(Replay, RanksAreAlignedBySequence) {
  JobRecord record = two_ranks(6);
  auto& ops = record.groups[0].ranks[1].ops;
  ops.erase(ops.begin(), ops.begin() + 3);  // its ring is further on
  const ReplayPlan plan = plan_replay(record, Place::in);
  EXPECT_EQ(plan.steps(), 4U);
  for (const ReplayOp& op : plan.ops) EXPECT_EQ(op.spans.size(), 2U);
  EXPECT_EQ(plan.ops.front().call.sequence, 5U);
}

TEST(Replay, ATornBeginningOfARingIsLeftOut) {
  JobRecord record = two_ranks(6);
  auto& ops = record.groups[0].ranks[0].ops;
  ops.front() = all_reduce_of(13, 77, 1006, 1006.1);  // newer than all behind it
  ops[1].start = 5000;                                // half written
  EXPECT_EQ(plan_replay(record, Place::in).steps(), 5U);
}

TEST(Replay, SaysWhatDoesNotFit) {
  JobRecord record = two_ranks(3);
  record.groups[0].ranks.pop_back();
  EXPECT_NE(refusal(record).find("has no ops of rank 1"), std::string::npos) << refusal(record);
  record = two_ranks(3);
  record.groups[0].ranks[1].ops[2].count = 9;
  EXPECT_NE(refusal(record).find("op #3 of group \"world\": rank 0 recorded all_reduce(sum, f32 x "
                                 "8), rank 1 all_reduce(sum, f32 x 9)"),
            std::string::npos)
      << refusal(record);
  record = two_ranks(3);
  record.groups[0].ranks[1].host = "there";
  EXPECT_NE(refusal(record).find("on here, there"), std::string::npos) << refusal(record);
  record = two_ranks(3);
  for (RecordedOp& op : record.groups[0].ranks[1].ops) op.ok = false;
  EXPECT_NE(refusal(record).find("no op that all of its ranks have finished"), std::string::npos);
  record = two_ranks(3);
  record.groups.push_back(record.groups[0]);
  record.groups[1].name = "other";
  record.groups[1].ranks[0].pid = 1;
  EXPECT_NE(refusal(record).find("one job"), std::string::npos) << refusal(record);
  record = two_ranks(3);
  for (RecordedRank& rank : record.groups[0].ranks)
    for (RecordedOp& op : rank.ops) op.kind = OpKind::all_to_all_v;
  EXPECT_NE(refusal(record).find("how much each rank sends to each other one"), std::string::npos)
      << refusal(record);
}

TEST(Replay, FilesOfAFolderMakeOneRecord) {
  const TemporaryDirectory folder;
  const auto save = [&](const char* name, const JobRecord& record) {
    std::ofstream(folder / name) << to_text(record);
  };
  EXPECT_THROW(read_job_record(folder.path()), InvalidArgument) << "no file in it";
  JobRecord first = two_ranks(4), second = two_ranks(6);
  first.groups[0].ranks.pop_back();
  second.groups[0].ranks.erase(second.groups[0].ranks.begin());
  save("c10d-record-here-100-0.json", first);
  save("c10d-record-here-101-0.json", second);
  save("other.json", {});
  EXPECT_EQ(plan_replay(read_job_record(folder.path()), Place::in).steps(), 4U);
  save("c10d-record-here-100-1.json", two_ranks(5));  // rank 0 was read again
  EXPECT_EQ(plan_replay(read_job_record(folder.path()), Place::in).steps(), 5U);
  JobRecord another = two_ranks(4);
  another.groups[0].ranks[0].pid = 7;
  save("c10d-record-here-7-0.json", another);
  try {
    read_job_record(folder.path());
    ADD_FAILURE() << "two jobs";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("records of several jobs"), std::string::npos)
        << error.what();
  }
}

// Before a rank is started.
TEST(Replay, WhatWouldTakeTooLongOrTooMuchIsRefused) {
  const TemporaryDirectory folder;
  const auto refusal_of = [&](const JobRecord& record) -> std::string {
    ReplayCommand command;
    command.source = folder / "record.json";
    command.how.backends = {"native"};
    std::ofstream(command.source) << to_text(record);
    try {
      run_replay(command, {"c10d-bench", "replay", command.source});
      return "none";
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  };
  JobRecord record = two_ranks(4);
  for (RecordedRank& rank : record.groups[0].ranks)
    for (RecordedOp& op : rank.ops) {
      op.start *= 1e4;
      op.end *= 1e4;
    }
  EXPECT_NE(refusal_of(record).find("--no-gaps"), std::string::npos) << refusal_of(record);
  record = two_ranks(4);
  for (RecordedRank& rank : record.groups[0].ranks)
    for (RecordedOp& op : rank.ops) op.count = std::uint64_t{1} << 42;
  EXPECT_NE(refusal_of(record).find("of buffers"), std::string::npos) << refusal_of(record);
}

TEST(Replay, TextIsReadBack) {
  const std::string text = to_text(two_ranks(3));
  EXPECT_EQ(to_text(parse_job_record(text, "file")), text);
}

TEST(Replay, AHostileRecordIsRefused) {
  EXPECT_NE(refusal("").find("is no record"), std::string::npos);
  EXPECT_NE(refusal("{}").find("lacks c10d_record"), std::string::npos) << refusal("{}");
  EXPECT_NE(refusal(R"({"c10d_record":2})").find("c10d_record is 2"), std::string::npos);
  EXPECT_NE(refusal(std::string(1'000'000, '[')).find("too many brackets"), std::string::npos);
  const std::string good = to_text(two_ranks(1));
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return refusal(text);
  };
  EXPECT_NE(
      with(R"("count":8)", R"("count":99999999999999999)").find("rank 0, op 1: count is 9999"),
      std::string::npos)
      << with(R"("count":8)", R"("count":99999999999999999)");
  EXPECT_NE(with(R"("count":8)", R"("count":-1)").find("count is -1"), std::string::npos);
  EXPECT_NE(with(R"("size":2)", R"("size":1000000)").find("size is 1000000"), std::string::npos);
  EXPECT_NE(with(R"("size":2)", R"("size":1)").find("ranks has 2 entries"), std::string::npos);
  EXPECT_NE(with(R"("all_reduce")", R"("all_redduce")").find("all_reduce"), std::string::npos);
  EXPECT_NE(with(R"("started_s_ago":-1000.0)", R"("started_s_ago":1e300)").find("started_s_ago"),
            std::string::npos);
  EXPECT_NE(with(R"("started_s_ago":-1000.0)", R"("started_s_ago":-9000.0)").find("ended before"),
            std::string::npos);
  EXPECT_NE(with(R"("rank":1)", R"("rank":0)").find("stands behind"), std::string::npos);
}

TEST(Replay, ACutRecordIsRefused) {
  const std::string text = to_text(two_ranks(2));
  for (std::size_t length = 0; length < text.size(); length += 3)
    EXPECT_NE(refusal(std::string_view(text).substr(0, length)), "none") << length;
}

// Whatever stands in it: a plan, or an error that says why not; and never a plan that is not whole.
TEST(Replay, AnAlteredRecordIsReadOrRefused) {
  const std::string text = to_text(two_ranks(4));
  std::mt19937_64 random(17);
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string altered = text;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n)
      altered[random() % altered.size()] = "0123456789-.e\"{}[],:xn"[random() % 22];
    try {
      const ReplayPlan plan = plan_replay(parse_job_record(altered, "file"), Place::in);
      ++read;
      ASSERT_EQ(plan.ops.size(), plan.steps() * plan.ops_per_step);
      for (const ReplayOp& op : plan.ops) {
        ASSERT_EQ(op.spans.size(), static_cast<std::size_t>(plan.ranks));
        ASSERT_LT(op.slot, plan.slots.size());
        ASSERT_LT(op.group, plan.groups.size());
      }
      for (const double step : communication_by_step(plan, recorded_spans(plan)))
        ASSERT_GE(step, 0);
    } catch (const InvalidArgument&) {
    }
  }
  EXPECT_GT(read, 0) << "some digits may change";
}

}}  // namespace c10d::bench
