// SPDX-License-Identifier: BSD-3-Clause
// "Pipeline schedules as data": text, generators, the checks, the simulator.
#include "c10d/parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "c10d/error.h"

namespace c10d::parallel { namespace {

using enum ActionKind;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

void expect_refused(const std::function<void()>& call, const std::vector<std::string>& parts) {
  const std::string what = refusal(call);
  for (const std::string& part : parts) EXPECT_NE(what.find(part), std::string::npos) << what;
}

struct Case {
  std::string_view name;
  int ranks, micro_batches, chunks;
};

// Every generator with every number of chunks that it has.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string_view name : schedule_names())
    for (const int ranks : {1, 2, 3, 4})
      for (const int micro_batches : {1, 2, 4, 8, 12})
        for (const int chunks : {1, 2, 3}) {
          if ((name == "1f1b" || name == "zb-h1") && chunks != 1) continue;
          if (name == "zb-v" && chunks != 2) continue;
          if (name == "interleaved" && chunks > 1 && micro_batches > ranks &&
              micro_batches % ranks != 0)
            continue;
          all.push_back({name, ranks, micro_batches, chunks});
        }
  return all;
}

std::string describe(const Case& c) {
  return std::string(c.name) + " p" + std::to_string(c.ranks) + " m" +
         std::to_string(c.micro_batches) + " v" + std::to_string(c.chunks);
}

TEST(Schedule, OfEveryGeneratorIsValidAndSurvivesText) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const Schedule schedule = make_schedule(c.name, c.ranks, c.micro_batches, c.chunks);
    const Schedule lowered = lower(schedule);
    for (const Schedule& form :
         {schedule, lowered, forward_only(schedule), forward_only(lowered)}) {
      const ScheduleFacts facts = validate(form);
      EXPECT_EQ(facts.micro_batches, c.micro_batches);
      ASSERT_EQ(facts.rank_of_stage.size(), static_cast<std::size_t>(c.ranks * c.chunks));
      for (int stage = 0; stage < c.ranks * c.chunks; ++stage) {
        const bool back = c.name == "zb-v" && stage >= c.ranks;
        EXPECT_EQ(facts.rank_of_stage[static_cast<std::size_t>(stage)],
                  back ? 2 * c.ranks - 1 - stage : stage % c.ranks);
      }
      EXPECT_EQ(parse_schedule(to_csv(form)), form);
    }
    EXPECT_EQ(lower(lowered), lowered);
    EXPECT_TRUE(validate(schedule).trains);
    EXPECT_FALSE(validate(forward_only(schedule)).trains);
  }
}

// Idle time per rank, with F = I = W = 1 (so B = 2).
TEST(Schedule, BubblesHaveTheirClosedForm) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const int p = c.ranks, m = c.micro_batches, v = c.chunks;
    double idle = 3 * (p - 1);
    if ((c.name == "gpipe" || c.name == "interleaved") && v > 1) {
      if (m < p) continue;  // the next chunk then waits for the one before
    } else if (c.name == "zb-h1") {
      idle = 2 * (p - 1) - std::min(p, m) + 1;  // p - 1 with m >= p
    } else if (c.name == "zb-v") {
      idle = std::max(p - 1, 2 * (2 * p - 1 - m));  // stages are half as long here
    }
    const Simulation simulation = simulate(make_schedule(c.name, p, m, v));
    const double work = 3.0 * m * v;
    EXPECT_DOUBLE_EQ(simulation.makespan, work + idle);
    EXPECT_NEAR(simulation.bubble, idle / (work + idle), 1e-12);
  }
}

TEST(Schedule, BubblesFollowTheCosts) {
  const Costs costs{.forward = 2, .input = 3, .weight = 1.5, .communication = 0};
  const int p = 4, m = 8;
  const auto idle = [&](std::string_view name, int chunks) {
    return simulate(make_schedule(name, p, m, chunks), costs).makespan - m * chunks * (2 + 3 + 1.5);
  };
  EXPECT_DOUBLE_EQ(idle("gpipe", 1), (p - 1) * (2 + 3 + 1.5));
  EXPECT_DOUBLE_EQ(idle("1f1b", 1), (p - 1) * (2 + 3 + 1.5));
  EXPECT_DOUBLE_EQ(idle("interleaved", 2), (p - 1) * (2 + 3 + 1.5));
  EXPECT_DOUBLE_EQ(idle("zb-h1", 1), (p - 1) * (2 + 3 - 1.5));
  EXPECT_DOUBLE_EQ(idle("zb-v", 2), (p - 1) * 3);
  // One message each way per pair of ranks is exposed at either end.
  EXPECT_DOUBLE_EQ(simulate(make_schedule("gpipe", p, m), {.communication = 0.25}).makespan,
                   (m + p - 1) * 3 + 2 * (p - 1) * 0.25);
}

TEST(Schedule, PeakActivationsAreThoseOfTheLiterature) {
  const int p = 4, m = 8;
  const auto peaks = [&](std::string_view name, int chunks) {
    return validate(make_schedule(name, p, m, chunks)).peak_activations;
  };
  EXPECT_EQ(peaks("gpipe", 1), (std::vector<int>{8, 8, 8, 8}));
  EXPECT_EQ(peaks("1f1b", 1), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(peaks("interleaved", 2), (std::vector<int>{11, 9, 7, 5}));
  for (const int peak : peaks("zb-h1", 1)) EXPECT_LE(peak, p);
  for (const int peak : peaks("zb-v", 2)) EXPECT_LE(peak, 2 * p);
}

// A limit of the peak is kept; with one less the first rank that breaks it is named, and where.
TEST(Schedule, KeepsToTheMemoryOfARank) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const Schedule schedule = make_schedule(c.name, c.ranks, c.micro_batches, c.chunks);
    const std::vector<int> peaks = validate(schedule).peak_activations;
    const int most = *std::ranges::max_element(peaks);
    EXPECT_EQ(validate(schedule, {}, most).peak_activations, peaks);
    EXPECT_EQ(validate(lower(schedule), {}, most).peak_activations, peaks);
    const auto first = std::ranges::find(peaks, most) - peaks.begin();
    expect_refused([&] { validate(schedule, {}, most - 1); },
                   {" of rank " + std::to_string(first) + ",",
                    "holds " + std::to_string(most) + " activations",
                    "at most " + std::to_string(most - 1) + " fit"});
    EXPECT_EQ(validate(forward_only(schedule), {}, 1).micro_batches, c.micro_batches);
  }
  expect_refused([] { validate(make_schedule("gpipe", 2, 4), {}, 2); },
                 {"0F2, action 2 of rank 0, is the forward of stage 0", "holds 3", "at most 2"});
  expect_refused([] { validate(parse_schedule("0F0,2F0,2B0,0B0\n1F0,1B0\n"), {}, 1); },
                 {"2F0, action 1 of rank 0, is the forward of stage 2", "holds 2", "at most 1"});
}

TEST(Schedule, OfTwoRanksIsTheTextbookOne) {
  EXPECT_EQ(to_csv(make_schedule("1f1b", 2, 3)),
            "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(to_csv(lower(make_schedule("gpipe", 2, 1))),
            "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
}

TEST(Schedule, IsReadFromTheCommonNotation) {
  const Schedule schedule = parse_schedule(
      "0UNSHARD, 0F0,,\"0F1\",0B0,0B1,0REDUCE_GRAD,0RESHARD\r\n"
      ",1F0,(1F1;1I0)OVERLAP_F_B,1W0,1B1,\r\n");
  ASSERT_EQ(schedule.ranks.size(), 2u);
  EXPECT_EQ(schedule.ranks[0][0], (Action{0, unshard, -1}));
  EXPECT_EQ(schedule.ranks[0][5], (Action{0, reduce_grad, -1}));
  EXPECT_EQ(schedule.ranks[1], (std::vector<Action>{{1, forward, 0},
                                                    {1, forward, 1},
                                                    {1, backward_input, 0},
                                                    {1, backward_weight, 0},
                                                    {1, backward, 1}}));
  EXPECT_EQ(validate(schedule).micro_batches, 2);
}

TEST(Schedule, NamesWhatItCannotRead) {
  for (const std::string_view bad :
       {"1G0", "F0", "1F", "1REDUCE_GRAD0", "-1F0", "1F0x", "1f0", "4096F0", "0F65536",
        "0F99999999999999999999", "(1F0;1B0)", "(1F0;nil)OVERLAP_F_B"})
    expect_refused([&] { parse_schedule("0F0,0B0\n1F0," + std::string(bad) + "\n"); },
                   {"row 2, column 2"});
  expect_refused([] { action_from_string("7X3"); }, {"\"7X3\"", "SEND_F"});
  // Each is in range, but together they would need a table of 2^28 cells.
  expect_refused([] { validate(parse_schedule("4095F65535")); }, {"4096 stages", "limits"});
}

TEST(Schedule, GeneratorsRefuseWhatTheyCannotDo) {
  expect_refused([] { make_schedule("2f2b", 2, 2); }, {"2f2b", "zb-h1"});
  expect_refused([] { make_schedule("zb-v", 2, 2, 1); }, {"zb-v", "2 stages per rank"});
  expect_refused([] { make_schedule("1f1b", 0, 2); }, {"0 ranks"});
  expect_refused([] { make_schedule("interleaved", 4, 6, 2); }, {"6 micro-batches", "4 ranks"});
  expect_refused([] { make_schedule("gpipe", 4096, 65536); }, {"limits"});
}

// Whatever is taken out of a lowered schedule is missed, by its name.
TEST(Schedule, WithoutOneOfItsActionsIsRefused) {
  for (const Case& c :
       {Case{"gpipe", 2, 3, 2}, {"1f1b", 3, 4, 1}, {"zb-v", 2, 3, 2}, {"zb-h1", 3, 3, 1}}) {
    const Schedule whole = lower(make_schedule(c.name, c.ranks, c.micro_batches, c.chunks));
    for (std::size_t rank = 0; rank < whole.ranks.size(); ++rank)
      for (std::size_t i = 0; i < whole.ranks[rank].size(); ++i) {
        Schedule broken = whole;
        const Action taken = broken.ranks[rank][i];
        broken.ranks[rank].erase(broken.ranks[rank].begin() + static_cast<std::ptrdiff_t>(i));
        expect_refused([&] { validate(broken); }, {to_string(taken) + " is missing"});
        broken.ranks[rank].push_back(taken);
        broken.ranks[rank].push_back(taken);
        expect_refused([&] { validate(broken); }, {to_string(taken) + " comes twice"});
      }
  }
}

TEST(Schedule, InAWrongOrderIsRefused) {
  const auto expect_stuck = [](std::string_view csv, const std::vector<std::string>& parts) {
    expect_refused([&] { validate(parse_schedule(csv)); }, parts);
  };
  expect_stuck("0F0,0B0\n1B0,1F0\n", {"1B0", "waits for 1F0"});
  expect_stuck("0F0,0W0,0I0\n", {"0W0", "waits for 0I0"});
  expect_stuck("0REDUCE_GRAD,0F0,0B0\n", {"0REDUCE_GRAD", "waits for 0W0"});
  expect_stuck("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n",
               {"1F0", "waits for 1RECV_F0"});
  // Each waits for the other: 0 wants a gradient of micro-batch 1 before it has sent its forward.
  expect_stuck("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
               {"rank 0 has 0RECV_B0, which waits for 1SEND_B0", "rank 1 has 1RECV_F1"});
  expect_stuck("0F0,0F1,0B1,0B0\n", {"0B1", "in order"});
  expect_stuck("0F0,0F1,0I0,0I1,0W1,0W0\n", {"0W1", "in order"});
  expect_stuck("0F0,1F0,1B0,0B0\n1REDUCE_GRAD\n",
               {"1REDUCE_GRAD is on rank 1", "stage 1 belongs to rank 0"});
  expect_stuck("0F0,0B0,0I0,0W0\n", {"0B0 and 0I0"});
  expect_stuck("0F0,0SEND_F0,0B0\n", {"0SEND_F0 is not expected here"});
  expect_stuck("0F0,2F0\n", {"1F0 is missing"});
  expect_stuck("", {"no forward"});
}

TEST(Schedule, KeepsToItsSkips) {
  const Schedule schedule = make_schedule("1f1b", 3, 2);
  const std::vector<Skip> skips{{0, 2}};
  EXPECT_EQ(lower(schedule, skips), lower(schedule));  // every stage sends and receives anyway
  EXPECT_EQ(validate(schedule, skips).micro_batches, 2);
  // With only stage 1 elsewhere, stage 2 has two sources and one message.
  const Schedule v = parse_schedule("0F0,2F0\n1F0\n");
  EXPECT_EQ(to_csv(lower(v, skips)), "0F0,0SEND_F0,2RECV_F0,2F0\n1RECV_F0,1F0,1SEND_F0\n");
  for (const Skip bad : {Skip{0, 1}, Skip{2, 0}, Skip{0, 3}, Skip{-1, 1}})
    expect_refused([&] { validate(schedule, {&bad, 1}); }, {"skip", std::to_string(bad.to)});
  const std::vector<Skip> twice{{0, 2}, {0, 2}};
  expect_refused([&] { validate(schedule, twice); }, {"two skips"});
}

TEST(Schedule, SimulationsPrintTheirTimeline) {
  EXPECT_EQ(to_text(simulate(make_schedule("gpipe", 2, 2))),
            "rank 0   0F0 0F1 .   .   .   0B0 -   0B1 -\n"
            "rank 1   .   1F0 1F1 1B0 -   1B1 -   .   .\n"
            "makespan 9, bubble 33.3 %, peak activations 2 2\n");
  const Simulation none = simulate(make_schedule("gpipe", 2, 2), {0, 0, 0, 0});
  EXPECT_EQ(to_text(none), "makespan 0, bubble 0.0 %, peak activations 2 2\n");
  expect_refused([] { simulate(make_schedule("gpipe", 2, 2), {.forward = -1}); }, {"-1"});
}

}}  // namespace c10d::parallel
