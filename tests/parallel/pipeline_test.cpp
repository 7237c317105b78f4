// SPDX-License-Identifier: BSD-3-Clause
// "Executes a schedule": the bits of one process, whatever the schedule; and every failure on every
// rank.
#include "c10d/parallel/pipeline.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>

#include "c10d/launch.h"
#include "tests/contract/ranks.h"
#include "tests/parallel/toy_model.h"

namespace c10d::parallel { namespace {

using contract::failure_of;
using enum ActionKind;

class PipelineOn : public contract::OnBackend {
 public:
  // Trains, and compares the weights with those of one process.
  static void expect_bits(ProcessGroup& group, const Schedule& schedule, const Model& model) {
    OwnStages own(schedule, model, group.rank());
    Pipeline pipeline(group, own.pointers(), options_of(schedule, model));
    for (int step = 0; step < model.steps; ++step) {
      pipeline.step();
      for (auto& entry : own.toys) entry.second.learn();
    }
    const Weights expected = train_alone(model);
    for (auto& [index, stage] : own.toys) {
      EXPECT_EQ(stage.weight(), expected.at(index)) << "stage " << index;
      EXPECT_NE(stage.weight(), ToyStage(index, model.edges(), model.columns).weight());
      EXPECT_EQ(stage.reduced, model.steps);
      for (std::size_t i = 0; i < stage.weight_order.size(); ++i)
        EXPECT_EQ(stage.weight_order[i], static_cast<int>(i) % model.micro_batches);
    }
  }

  struct Seen {
    int rank;
    std::string what;
    Failure failure;  // of a DistError
  };

  // Gets the stage of rank 1, and what ends when rank 0 has done all of its actions.
  using Sabotage = std::function<void(ToyStage&, contract::Latch& rank_0_is_through)>;

  // Two stages on two ranks, and what each rank sees.
  std::vector<Seen> after(const Sabotage& sabotage) const {
    std::mutex mutex;
    std::vector<Seen> seen;
    contract::Latch rank_0_is_through(1);
    run(2, [&](ProcessGroup& group) {
      const Model model{.stages = 2, .micro_batches = 4};
      const Schedule schedule = make_schedule("zb-h1", 2, 4);
      OwnStages own(schedule, model, group.rank());
      PipelineOptions options = options_of(schedule, model);
      options.activation_limit = 1000;
      if (group.rank() == 1)
        sabotage(own.toys.at(1), rank_0_is_through);
      else
        own.toys.at(0).on_reduce = [&] { rank_0_is_through.count_down(); };
      Seen mine{group.rank(), {}, {}};
      Pipeline pipeline(group, own.pointers(), std::move(options));
      try {
        pipeline.step();
        ADD_FAILURE() << "the step ended well on rank " << group.rank();
      } catch (const DistError& error) {
        mine.what = error.what();
        mine.failure = error.failure();
      } catch (const std::exception& error) {
        mine.what = error.what();
      }
      EXPECT_NE(group.failure(), nullptr);
      failure_of([&] { pipeline.step(); });  // it stays broken
      const std::lock_guard lock(mutex);
      seen.push_back(mine);
    });
    std::ranges::sort(seen, {}, &Seen::rank);
    return seen;
  }

  // Rank 1 throws what it threw; rank 0 hears of it, with the action.
  void expect_told(const Sabotage& sabotage, const std::string& action,
                   const std::string& text) const {
    const std::vector<Seen> seen = after(sabotage);
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_NE(seen[1].what.find(text), std::string::npos) << seen[1].what;
    EXPECT_EQ(seen[0].failure.code, Code::revoked) << seen[0].what;
    EXPECT_EQ(seen[0].failure.rank, 1);
    EXPECT_NE(seen[0].what.find("rank 1, " + action + ": "), std::string::npos) << seen[0].what;
    EXPECT_NE(seen[0].what.find(text), std::string::npos) << seen[0].what;
  }
};

TEST_P(PipelineOn, EveryScheduleHasTheBitsOfOneProcess) {
  for (const int ranks : {1, 2, 4})
    run(ranks, [&](ProcessGroup& group) {
      for (const std::string_view name : schedule_names())
        for (const int micro_batches : {1, 8})
          for (const int chunks : {1, 2}) {
            if ((name == "zb-v") != (chunks == 2) && name != "gpipe" && name != "interleaved")
              continue;
            SCOPED_TRACE(std::string(name) + " p" + std::to_string(ranks) + " m" +
                         std::to_string(micro_batches));
            const Schedule schedule = make_schedule(name, ranks, micro_batches, chunks);
            expect_bits(group, schedule,
                        {.stages = ranks * chunks, .micro_batches = micro_batches});
          }
    });
}

TEST_P(PipelineOn, SkipsAndTiedWeightsHaveTheBitsOfOneProcess) {
  for (const int ranks : {1, 2, 4})
    run(ranks, [&](ProcessGroup& group) {
      const int chunks = 4 / ranks;
      for (const std::string_view name : {"gpipe", "interleaved", "zb-v"}) {
        if (name == "zb-v" && chunks != 2) continue;
        SCOPED_TRACE(std::string(name) + " p" + std::to_string(ranks));
        expect_bits(group, make_schedule(name, ranks, 4, chunks),
                    {.stages = 4,
                     .micro_batches = 4,
                     .skips = {{0, 3}, {0, 2}, {1, 3}},
                     .tied = {{"all", {0, 1, 2, 3}}, {"two", {1, 3}}}});
      }
    });
}

TEST_P(PipelineOn, ActivationsLargerThanAnyBufferOfTheBackendArrive) {
  run(2, [](ProcessGroup& group) {
    expect_bits(group, make_schedule("1f1b", 2, 3),
                {.stages = 2, .micro_batches = 3, .columns = 100'000, .steps = 1});
  });
}

// The last is wanted first, while more than a backend holds unasked lies before it.
TEST_P(PipelineOn, MessagesMayBeWantedInAnotherOrderThanTheyAreSent) {
  constexpr int kMicroBatches = 120;
  Schedule schedule = make_schedule("gpipe", 2, kMicroBatches);
  std::reverse(schedule.ranks[1].begin(), schedule.ranks[1].begin() + kMicroBatches);
  run(2, [&](ProcessGroup& group) {
    expect_bits(group, schedule,
                {.stages = 2, .micro_batches = kMicroBatches, .columns = 5'000, .steps = 1});
  });
}

// More than gloo lets wait in a group, in each direction; also to and from many peers.
TEST_P(PipelineOn, AStepHasAnyNumberOfMicroBatches) {
  constexpr int kMicroBatches = 300;
  Schedule reversed = make_schedule("gpipe", 2, kMicroBatches);
  std::reverse(reversed.ranks[1].begin(), reversed.ranks[1].begin() + kMicroBatches);
  run(2, [&](ProcessGroup& group) {
    for (const Schedule& schedule : {make_schedule("gpipe", 2, kMicroBatches), reversed})
      expect_bits(group, schedule, {.stages = 2, .micro_batches = kMicroBatches, .steps = 1});
  });
  run(4, [&](ProcessGroup& group) {
    expect_bits(group, make_schedule("gpipe", 4, 150),
                {.stages = 4, .micro_batches = 150, .skips = {{0, 2}, {0, 3}, {1, 3}}, .steps = 1});
  });
}

TEST_P(PipelineOn, CallsTheHooksAroundEveryAction) {
  run(2, [](ProcessGroup& group) {
    const Model model{.stages = 2, .micro_batches = 2};
    const Schedule schedule = make_schedule("1f1b", 2, 2);
    OwnStages own(schedule, model, group.rank());
    PipelineOptions options = options_of(schedule, model);
    std::vector<Action> begun, ended;
    options.on_begin = [&](const Action& action) {
      EXPECT_EQ(begun, ended);
      begun.push_back(action);
    };
    options.on_end = [&](const Action& action) { ended.push_back(action); };
    Pipeline(group, own.pointers(), options).step();
    auto expected = lower(schedule).ranks[static_cast<std::size_t>(group.rank())];
    expected.push_back({group.rank(), reduce_grad, -1});
    EXPECT_EQ(begun, expected);
    EXPECT_EQ(ended, expected);
  });
}

// Forward 3 of stage 0 goes on until forward 0 of stage 3 has begun, and so do those between.
TEST_P(PipelineOn, FourStagesComputeAtTheSameTime) {
  using Clock = std::chrono::steady_clock;
  struct Span {
    Action action;
    Clock::time_point begin, end;
  };
  for (const std::string_view name : {"gpipe", "1f1b", "zb-h1"}) {
    contract::Latch all_compute(4);
    std::vector<std::vector<Span>> traces(4);
    run(4, [&](ProcessGroup& group) {
      const int rank = group.rank();
      const Model model{.stages = 4, .micro_batches = 8, .steps = 1};
      const Schedule schedule = make_schedule(name, 4, 8);
      OwnStages own(schedule, model, rank);
      own.toys.at(rank).before_forward = [&](int i) {
        if (i == 3 - rank) all_compute.arrive_and_wait();
      };
      PipelineOptions options = options_of(schedule, model);
      std::vector<Span>& trace = traces[static_cast<std::size_t>(rank)];
      options.on_begin = [&](const Action& action) { trace.push_back({action, Clock::now(), {}}); };
      options.on_end = [&](const Action&) { trace.back().end = Clock::now(); };
      Pipeline(group, own.pointers(), options).step();
    });
    Clock::time_point all_began = Clock::time_point::min(), none_ended = Clock::time_point::max();
    for (int rank = 0; rank < 4; ++rank)
      for (const Span& span : traces[static_cast<std::size_t>(rank)])
        if (span.action == Action{rank, forward, 3 - rank}) {
          all_began = std::max(all_began, span.begin);
          none_ended = std::min(none_ended, span.end);
        }
    EXPECT_LE(all_began, none_ended) << name;
    EXPECT_NE(none_ended, Clock::time_point::max());
  }
}

TEST_P(PipelineOn, ReducesWhereTheScheduleSaysSo) {
  run(2, [](ProcessGroup& group) {
    const Model model{.stages = 3, .micro_batches = 1};
    const Schedule schedule =
        parse_schedule("0F0,2F0,2B0,2REDUCE_GRAD,0B0,0REDUCE_GRAD\n1F0,1B0\n");
    OwnStages own(schedule, model, group.rank());
    Pipeline pipeline(group, own.pointers(), options_of(schedule, model));
    std::vector<int> order;
    for (auto& entry : own.toys)
      entry.second.on_reduce = [&order, stage = entry.first] { order.push_back(stage); };
    pipeline.step();
    EXPECT_EQ(order, group.rank() == 0 ? (std::vector<int>{2, 0}) : std::vector<int>{1});
  });
}

TEST_P(PipelineOn, EvaluatesWithTheSameStages) {
  run(2, [](ProcessGroup& group) {
    const Model model{.stages = 4, .micro_batches = 3};
    const Schedule training = make_schedule("zb-v", 2, 3, 2);
    OwnStages own(training, model, group.rank());
    Pipeline train(group, own.pointers(), options_of(training, model));
    Pipeline evaluate(group, own.pointers(), options_of(forward_only(training), model));
    std::vector<int> order;
    own.toys.begin()->second.before_forward = [&](int i) { order.push_back(i); };
    evaluate.step();
    train.step();
    evaluate.step();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
    for (auto& entry : own.toys) EXPECT_EQ(entry.second.reduced, 1);
  });
}

TEST_P(PipelineOn, AStageThatThrowsEndsTheStepOnEveryRank) {
  const auto broken = [](int i) {
    if (i == 2) throw std::domain_error("the third one is broken");
  };
  expect_told([&](ToyStage& stage, auto&) { stage.before_forward = broken; }, "1F2",
              "the third one is broken");
  expect_told([&](ToyStage& stage, auto&) { stage.before_input = broken; }, "1I2",
              "the third one is broken");
  // It must not take the step for done.
  expect_told(
      [&](ToyStage& stage, contract::Latch& rank_0_is_through) {
        stage.on_reduce = [&] {
          rank_0_is_through.wait();
          broken(2);
        };
      },
      "1REDUCE_GRAD", "the third one is broken");
}

TEST_P(PipelineOn, AWrongGradientIsNamedOnEveryRank) {
  expect_told(
      [](ToyStage& stage, auto&) {
        stage.alter_gradients = [](auto& all) { all[0] = make_activation({7}); };
      },
      "1I0", "returned the gradient f32 [7] of an input f32 [1, 5]");
  expect_told(
      [](ToyStage& stage, auto&) { stage.alter_gradients = [](auto& all) { all.clear(); }; }, "1I0",
      "returned 0 activations instead of 1");
  expect_told(
      [](ToyStage& stage, auto&) {
        stage.alter_gradients = [](auto& all) { all[0].shape = {2, 5}; };
      },
      "1I0", "f32 [2, 5] with 5 elements");
  expect_told(
      [](ToyStage& stage, auto&) {
        stage.alter_gradients = [](auto& all) { all[0] = make_activation({1000}); };
      },
      "1I0", "f32 [1000]");
}

// What no pipeline sends, under the tag of the first header.
TEST_P(PipelineOn, AHostileHeaderIsRefusedBeforeMemoryIsTaken) {
  using Header = std::array<std::int64_t, 10>;
  for (const Header& header :
       {Header{99, 1, 5}, Header{-1, 1, 5}, Header{1, 9, 5}, Header{1, -1, 5}, Header{1, 1, -5},
        Header{1, 1, 251}, Header{0, 1, 126}, Header{1, 3, 1 << 30, 1 << 30, 1 << 30},
        Header{1, 2, INT64_MAX, INT64_MAX}})
    run(2, [&](ProcessGroup& group) {
      const Model model{.stages = 2, .micro_batches = 1};
      const Schedule schedule = make_schedule("gpipe", 2, 1);
      OwnStages own(schedule, model, group.rank());
      PipelineOptions options = options_of(schedule, model);
      options.activation_limit = 1000;
      Pipeline pipeline(group, own.pointers(), options);
      const Failure failure = failure_of([&] {
        if (group.rank() == 1) return pipeline.step();
        group.send(header, 1, 0);
        group.barrier();
      });
      EXPECT_EQ(failure.code, group.rank() == 1 ? Code::corrupt : Code::revoked);
      EXPECT_NE(failure.message.find("rank 0 announced"), std::string::npos) << failure.message;
    });
}

TEST_P(PipelineOn, AStepThatIsLateFailsOnEveryRank) {
  contract::Latch told(1);
  run(2, [&](ProcessGroup& group) {
    const Model model{.stages = 2, .micro_batches = 1};
    const Schedule schedule = make_schedule("gpipe", 2, 1);
    OwnStages own(schedule, model, group.rank());
    if (group.rank() == 0) own.toys.at(0).before_forward = [&](int) { told.wait(); };
    Pipeline pipeline(group, own.pointers(), options_of(schedule, model));
    // A deadline that the other rank cannot reach before this one: it waits for the latch.
    const auto timeout =
        group.rank() == 1 ? Duration(std::chrono::milliseconds(200)) : Duration(contract::kTimeout);
    const Failure failure = failure_of([&] { pipeline.step(timeout); });
    if (group.rank() == 1) told.count_down();
    // The other hears of it as the timeout of an op or as the abort that follows.
    EXPECT_TRUE(failure.code == Code::timed_out ||
                (group.rank() == 0 && failure.code == Code::revoked))
        << failure.message;
  });
}

TEST_P(PipelineOn, AStepWithoutTimeIsRefusedAndTheNextOneIsTaken) {
  run(2, [](ProcessGroup& group) {
    const Model model{.stages = 2, .micro_batches = 1};
    const Schedule schedule = make_schedule("gpipe", 2, 1);
    OwnStages own(schedule, model, group.rank());
    Pipeline pipeline(group, own.pointers(), options_of(schedule, model));
    for (const Duration none : {Duration(0), Duration(-1)})
      EXPECT_THROW(pipeline.step(none), InvalidArgument);
    pipeline.step();
    EXPECT_EQ(own.toys.begin()->second.reduced, 1);
  });
}

TEST(Activations, HaveTheMemoryOfTheirShapeOrAreRefused) {
  const Activation activation = make_activation({2, 3, 5}, DType::f64);
  EXPECT_EQ(activation.shape, (std::vector<std::int64_t>{2, 3, 5}));
  EXPECT_EQ(activation.data.count, 30u);
  EXPECT_EQ(activation.data.dtype, DType::f64);
  EXPECT_EQ(activation.owner.get(), activation.data.data);
  EXPECT_EQ(make_activation({}).data.count, 1u);  // a scalar
  EXPECT_EQ(make_activation({4, 0, INT64_MAX}).data.count, 0u);
  EXPECT_EQ(make_activation(std::vector<std::int64_t>(kMaxActivationDims, 1)).data.count, 1u);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{3, -1},
        {INT64_MAX, 2},
        {1ll << 31, 1ll << 31},
        std::vector<std::int64_t>(kMaxActivationDims + 1, 1)})
    EXPECT_THROW(make_activation(shape), InvalidArgument);
}

TEST(Stages, HoldNoTiedWeightUnlessTheySaySo) {
  ToyStage stage(0, {{0, 1}}, 5);
  EXPECT_THROW(stage.Stage::tied_gradient("head"), InvalidArgument);
}

struct OddlyTied : ToyStage {
  OddlyTied(int stage, std::size_t count) : ToyStage(stage, {{0, 1}}, 5), values(count) {}
  View tied_gradient(std::string_view) override { return std::span(values); }
  std::vector<float> values;
};

// Of the first stage's rank and of the other one, which has fewer or more.
TEST_P(PipelineOn, ATiedWeightOfAnotherShapeIsAnErrorOnEveryRank) {
  for (const std::size_t count : {3, 7})
    run(2, [&](ProcessGroup& group) {
      OddlyTied stage(group.rank(), group.rank() == 0 ? 5 : count);
      PipelineOptions options;
      options.schedule = make_schedule("gpipe", 2, 1);
      options.tied = {{"head", {0, 1}}};
      Pipeline pipeline(group, {{group.rank(), &stage}}, options);
      const Failure failure = failure_of([&] { pipeline.step(); });
      EXPECT_NE(failure.code, Code::timed_out);
      EXPECT_NE(failure.message.find("f32 x " + std::to_string(count)), std::string::npos)
          << failure.message;
      EXPECT_NE(failure.message.find("f32 x 5"), std::string::npos) << failure.message;
    });
}

TEST_P(PipelineOn, RanksThatDisagreeAreToldBeforeTheFirstStep) {
  run(2, [](ProcessGroup& group) {
    const bool odd = group.rank() == 1;
    const Model model{.stages = 2, .micro_batches = 4};
    const Schedule schedule = make_schedule(odd ? "gpipe" : "1f1b", 2, 4);
    OwnStages own(schedule, model, group.rank());
    const Failure failure =
        failure_of([&] { Pipeline(group, own.pointers(), options_of(schedule, model)); });
    EXPECT_EQ(failure.code, Code::mismatch);
    EXPECT_EQ(failure.rank, 1);
    contract::expect_usable(group);
    // One rank's own mistake is its InvalidArgument, and everybody's error.
    const auto expect_refused = [&](const std::map<int, Stage*>& stages, const std::string& text,
                                    std::optional<int> max_live_activations = {}) {
      const auto construct = [&] {
        PipelineOptions options = options_of(make_schedule("1f1b", 2, 4), model);
        if (odd) options.max_live_activations = max_live_activations;
        Pipeline(group, odd ? stages : own.pointers(), options);
      };
      if (odd) {
        EXPECT_THROW(construct(), InvalidArgument);
      } else {
        const Failure other = failure_of(construct);
        EXPECT_EQ(other.code, Code::mismatch);
        EXPECT_NE(other.message.find(text), std::string::npos) << other.message;
      }
      contract::expect_usable(group);
    };
    expect_refused({}, "stage 1 on rank 1, but rank 1 was not given it");
    ToyStage extra(0, model.edges(), model.columns);
    auto both = own.pointers();
    both[0] = &extra;
    expect_refused(both, "stage 0 on rank 0, but rank 1 was given it");
    expect_refused(own.pointers(), "holds 2 activations; at most 1 fit", 1);
    PipelineOptions tied = options_of(make_schedule("1f1b", 2, 4), model);
    if (odd) tied.tied = {{"head", {0, 1}}};
    EXPECT_EQ(contract::code_of([&] { Pipeline(group, own.pointers(), tied); }), Code::mismatch);
    contract::expect_usable(group);
    PipelineOptions options = options_of(make_schedule("1f1b", 2, 4), model);
    options.tied = {{"w", {1, 0}}};
    EXPECT_THROW(Pipeline(group, own.pointers(), options), InvalidArgument);
    options = options_of(make_schedule("1f1b", 3, 4), model);
    EXPECT_THROW(Pipeline(group, own.pointers(), options), InvalidArgument);
    EXPECT_THROW(Pipeline(group, own.pointers(), options_of(parse_schedule("0F0\n0B0\n"), model)),
                 InvalidArgument);
    contract::expect_usable(group);
  });
}

// Rank 2 of three is killed in the middle of a step. The others say which error they see.
TEST_P(PipelineOn, ARankThatDiesEndsTheStepOnTheOthers) {
  std::mutex mutex;
  std::map<int, std::string> said;
  const LaunchResult result =
      launch({.ranks = 3,
              .command = {"/proc/self/exe", "--rank-that-may-die", GetParam()},
              .environment = {},
              .grace = std::chrono::seconds(100),
              .on_line = [&](int rank, bool is_stderr, std::string_view line) {
                const std::lock_guard lock(mutex);
                if (!is_stderr) said[rank] += line;
              }});
  EXPECT_EQ(result.first_failed, 2);
  EXPECT_EQ(result.ranks.at(2).signal, SIGKILL);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(result.ranks.at(static_cast<std::size_t>(rank)).exit_code, 0);
    EXPECT_NE(said[rank].find("failed: "), std::string::npos) << said[rank];
  }
}

C10D_ON_EACH_BACKEND(PipelineOn);

int run_rank_that_may_die(const char* backend) {
  std::signal(SIGTERM, SIG_IGN);  // the launcher's, once rank 2 is dead
  ProcessGroup group = init_process_group({.backend = backend, .timeout = contract::kTimeout});
  const Model model{.stages = 3, .micro_batches = 4};
  const Schedule schedule = make_schedule("1f1b", 3, 4);
  OwnStages own(schedule, model, group.rank());
  if (group.rank() == 2)
    own.toys.at(2).before_forward = [](int i) {
      if (i == 1) std::raise(SIGKILL);
    };
  Pipeline pipeline(group, own.pointers(), options_of(schedule, model));
  try {
    pipeline.step();
  } catch (const DistError& error) {
    std::printf("failed: %s\n", error.what());
    return error.code() == Code::timed_out ? 2 : 0;
  }
  return 1;
}

}}  // namespace c10d::parallel

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--rank-that-may-die")
    return c10d::parallel::run_rank_that_may_die(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
