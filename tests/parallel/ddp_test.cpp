// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/ddp.h"

#include <mutex>
#include <optional>
#include <thread>

#include "src/parallel/ddp/buckets.h"
#include "tests/contract/ranks.h"
#include "tests/parallel/model.h"

namespace c10d::parallel { namespace {

using contract::OnBackend;
using DdpOn = OnBackend;

constexpr int kShards = 8;
constexpr std::int64_t kSteps = 30;
constexpr std::int64_t kFewSteps = 8;  // the nearly empty one among them

// Some buckets of one parameter, some of several.
ReducerOptions reproducible() {
  return {.mode = ReduceMode::reproducible,
          .shards = kShards,
          .first_bucket_bytes = 64,
          .bucket_bytes = 256};
}

constexpr ReducerOptions kSmall{.first_bucket_bytes = 64, .bucket_bytes = 256};

enum class Order { lockstep, one_after_the_other };

// What a training step does wrong on purpose.
struct Mutation {
  bool swaps_parameters = false;
  BucketHook hook = {};
  bool swaps_shards = false;  // 1 and 2 of all, which no node of the tree has as its two children
  bool forgets_divisor = false;
  bool skips_parameter = false;  // the last: each rank goes on with a mean of its own
};

// Trains on this rank; with `shards` shards in all. Compares the weights of all ranks every step.
Weights trained(ProcessGroup& group, const ReducerOptions& options, int shards, std::int64_t steps,
                Order order = Order::lockstep, const Mutation& mutation = {}) {
  Weights weights = model_weights();
  Reducer reducer(group, model_params(), options);
  if (mutation.hook) reducer.set_hook(mutation.hook);
  const ShardRange own = shards_of(shards, group.rank(), group.size());
  std::vector<float> own_sum;
  const auto compute = [&](std::int64_t step, std::size_t param, int shard) {
    if (mutation.swaps_shards && (shard == 1 || shard == 2)) shard = 3 - shard;
    std::size_t view = param;
    if (mutation.swaps_parameters && (param == 1 || param == 0)) view = 1 - param;
    const auto out = floats(reducer.grad_view(view));
    std::vector<float> value(weights[param].size());
    gradient(weights[param], param, step, samples_of(batch_of(step), shards, shard), value);
    if (mutation.skips_parameter && param + 1 == weights.size()) own_sum = value;
    std::copy_n(value.begin(), std::min(value.size(), out.size()), out.begin());
    reducer.mark_ready(view);
  };
  for (std::int64_t step = 0; step < steps; ++step) {
    std::int64_t samples = 0;
    for (int shard = own.first; shard < own.last; ++shard)
      samples += samples_of(batch_of(step), shards, shard).count();
    reducer.begin_step({.samples = samples});
    if (order == Order::lockstep)
      for (std::size_t param = weights.size(); param-- > 0;)
        for (int shard = own.first; shard < own.last; ++shard) compute(step, param, shard);
    if (order == Order::one_after_the_other)
      for (int shard = own.first; shard < own.last; ++shard)
        for (const std::size_t param : {2u, 4u, 3u, 0u, 1u}) compute(step, param, shard);
    EXPECT_EQ(reducer.finish().samples, batch_of(step));
    for (std::size_t param = 0; param < weights.size(); ++param) {
      const auto mean = floats(reducer.grad_view(param));
      if (mutation.forgets_divisor)
        for (float& value : mean) value *= static_cast<float>(batch_of(step));
      if (mutation.skips_parameter && param + 1 == weights.size())
        std::copy(own_sum.begin(), own_sum.end(), mean.begin());
      descend(weights[param], mean);
    }
    std::vector<float> all;
    for (const auto& values : weights) all.insert(all.end(), values.begin(), values.end());
    check_same(group, "weights", std::as_bytes(std::span(all)));
  }
  return weights;
}

// E1, E7: uneven batches; ranks without samples; any bucket size; any order of shards.
TEST_P(DdpOn, SameWeightsAtEveryWorldSize) {
  const Weights expected = trained_alone(kShards, kSteps);
  using Sizes = std::vector<int>;
  for (const int size : GetParam() == "native" ? Sizes{1, 2, 3, 4, 8} : Sizes{3})
    run(size, [&](ProcessGroup& group) {
      EXPECT_EQ(trained(group, reproducible(), kShards, kSteps), expected) << size;
    });
}

TEST_P(DdpOn, SameWeightsInEveryOrderAndBucketSize) {
  const Weights expected = trained_alone(kShards, kFewSteps);
  run(3, [&](ProcessGroup& group) {
    EXPECT_EQ(trained(group, reproducible(), kShards, kFewSteps, Order::one_after_the_other),
              expected);
    ReducerOptions large = reproducible();
    large.bucket_bytes = large.first_bucket_bytes = 1 << 20;
    large.check_hash = true;
    EXPECT_EQ(trained(group, large, kShards, kFewSteps), expected);
  });
}

TEST_P(DdpOn, MoreRanksThanShards) {
  const Weights expected = trained_alone(2, kFewSteps);
  ReducerOptions options = reproducible();
  options.shards = 2;
  run(3, [&](ProcessGroup& group) { EXPECT_EQ(trained(group, options, 2, kFewSteps), expected); });
}

// From the first view of a step to the last, on the rank that has the most.
TEST_P(DdpOn, GradientBytesAreWhatTheViewsSpan) {
  for (const int size : {1, 2, 3})
    run(size, [&](ProcessGroup& group) {
      Reducer reducer(group, model_params(), reproducible());
      const ShardRange own = shards_of(kShards, group.rank(), size);
      std::uintptr_t begin = UINTPTR_MAX, end = 0;
      reducer.begin_step({.samples = own.count()});
      for (int shard = own.first; shard < own.last; ++shard)
        for (std::size_t param = 0; param < model_params().size(); ++param) {
          const std::span<std::byte> view = reducer.grad_view(param);
          const auto at = reinterpret_cast<std::uintptr_t>(view.data());
          begin = std::min(begin, at);
          end = std::max(end, at + view.size());
          std::fill(view.begin(), view.end(), std::byte{0});
          reducer.mark_ready(param);
        }
      reducer.finish();
      std::vector<std::int64_t> most{static_cast<std::int64_t>(end - begin)};
      group.all_reduce(most, ReduceOp::max);
      const std::size_t whole_lines = (static_cast<std::size_t>(most[0]) + 63) / 64 * 64;
      EXPECT_EQ(gradient_bytes(model_params(), reproducible(), size), whole_lines) << size;
    });
}

// Two ranks have only one order of adding. 100 steps.
TEST_P(DdpOn, FastModeIsTheMeanOfTheRanks) {
  const std::int64_t steps = GetParam() == "native" ? 100 : kFewSteps;
  const Weights expected = trained_alone(2, steps);
  run(2, [&](ProcessGroup& group) { EXPECT_EQ(trained(group, kSmall, 2, steps), expected); });
}

// E12: the tests above see each of these.
TEST_P(DdpOn, MutationsChangeTheWeights) {
  const Weights expected = trained_alone(2, kFewSteps);
  run(2, [&](ProcessGroup& group) {
    const auto with = [&](const Mutation& mutation) {
      return trained(group, kSmall, 2, kFewSteps, Order::lockstep, mutation);
    };
    const auto mean = [](ProcessGroup& own, const Bucket& bucket) {
      own.all_reduce(bucket.gradient);
      divide(bucket.gradient, bucket.samples);
    };
    const auto undivided = [](ProcessGroup& own, const Bucket& bucket) {
      own.all_reduce(bucket.gradient);
    };
    EXPECT_EQ(with({.hook = mean}), expected);
    EXPECT_NE(with({.hook = undivided}), expected);
    EXPECT_NE(with({.swaps_parameters = true}), expected);
    // One bucket stays as it is on each rank: the weights part, and the check of them says so.
    const auto skips_one = [](ProcessGroup& own, const Bucket& bucket) {
      if (bucket.index != 1) own.all_reduce(bucket.gradient);
      divide(bucket.gradient, bucket.samples);
    };
    EXPECT_EQ(contract::code_of([&] { with({.hook = skips_one}); }), Code::mismatch);
  });
}

TEST_P(DdpOn, MutationsChangeTheWeightsOfTheReproducibleMode) {
  const Weights expected = trained_alone(kShards, kFewSteps);
  run(2, [&](ProcessGroup& group) {
    const auto with = [&](const Mutation& mutation) {
      return trained(group, reproducible(), kShards, kFewSteps, Order::lockstep, mutation);
    };
    EXPECT_EQ(with({}), expected);
    EXPECT_NE(with({.forgets_divisor = true}), expected);
    EXPECT_NE(with({.swaps_parameters = true}), expected);
    EXPECT_NE(with({.swaps_shards = true}), expected);
    EXPECT_EQ(contract::code_of([&] { with({.skips_parameter = true}); }), Code::mismatch);
  });
}

// E11: what one process makes of as many shards, but for the order in which the backend adds.
TEST_P(DdpOn, FastModeIsWithinRoundingOfOneProcess) {
  using Sizes = std::vector<int>;
  for (const int size : GetParam() == "native" ? Sizes{3, 4, 8} : Sizes{3, 4}) {
    const Weights expected = trained_alone(size, kFewSteps);
    run(size, [&](ProcessGroup& group) {
      EXPECT_LT(distance(trained(group, kSmall, size, kFewSteps), expected), 1e-6) << size;
    });
  }
}

TEST_P(DdpOn, CheckHashNamesTheRanksThatDiffer) {
  run(3, [&](ProcessGroup& group) {
    Reducer reducer(group, model_params(), {.check_hash = true});
    reducer.set_hook([](ProcessGroup& own, const Bucket& bucket) {
      if (own.rank() == 2) static_cast<float*>(bucket.gradient.data)[0] += 1;
    });
    reducer.begin_step({.samples = 1});
    for (std::size_t param = 0; param < 5; ++param) reducer.mark_unused(param);
    const Failure failure = contract::failure_of([&] { reducer.finish(); });
    EXPECT_NE(failure.message.find("ranks 2 do not have the bits of rank 0"), std::string::npos)
        << failure.message;
  });
}

std::vector<ParamSpec> two_params() {
  return {{.name = "a", .shape = {4}}, {.name = "b", .shape = {2, 3}}};
}

void fill(Reducer& reducer, std::size_t param, float value) {
  const auto view = floats(reducer.grad_view(param));
  std::fill(view.begin(), view.end(), value);
}

std::vector<float> mean_of(Reducer& reducer, std::size_t param) {
  const auto view = floats(reducer.grad_view(param));
  return {view.begin(), view.end()};
}

// The exact divisor: rank r has r + 1 samples, each of gradient 6; then only rank 0 has
// any; then none has.
TEST_P(DdpOn, DividesByTheTrueNumberOfSamples) {
  for (const ReduceMode mode : {ReduceMode::fast, ReduceMode::reproducible})
    run(3, [&](ProcessGroup& group) {
      Reducer reducer(group, two_params(), {.mode = mode, .shards = 3});
      const auto samples = static_cast<float>(group.rank() + 1);
      reducer.begin_step({.samples = group.rank() + 1});
      fill(reducer, 0, 6 * samples);
      reducer.mark_ready(0);
      fill(reducer, 1, samples * samples);
      reducer.mark_ready(1);
      EXPECT_EQ(reducer.finish().samples, 6);
      EXPECT_EQ(mean_of(reducer, 0), std::vector<float>(4, 6.0f));
      EXPECT_EQ(mean_of(reducer, 1), std::vector<float>(6, 14.0f / 6));

      reducer.begin_step({.samples = group.rank() == 0 ? 2 : 0});
      if (group.rank() == 0) {
        fill(reducer, 0, 3);
        reducer.mark_ready(0);
        reducer.mark_unused(1);
      }
      EXPECT_EQ(reducer.finish().samples, 2);
      EXPECT_EQ(mean_of(reducer, 0), std::vector<float>(4, 1.5f));
      EXPECT_EQ(mean_of(reducer, 1), std::vector<float>(6, 0.0f));

      reducer.begin_step({.samples = 0});
      EXPECT_EQ(reducer.finish().samples, 0);
      EXPECT_EQ(mean_of(reducer, 0), std::vector<float>(4, 0.0f));
    });
}

TEST_P(DdpOn, EveryFloatingPointDtypeInFastMode) {
  run(2, [](ProcessGroup& group) {
    Reducer reducer(group, {{.name = "f64", .shape = {2}, .dtype = DType::f64},
                            {.name = "bf16", .shape = {2}, .dtype = DType::bf16},
                            {.name = "f16", .shape = {2}, .dtype = DType::f16}});
    reducer.begin_step({.samples = 1});
    const double own = group.rank() == 0 ? 1 : 4;
    const auto doubles = reducer.grad_view(0);
    std::fill_n(reinterpret_cast<double*>(doubles.data()), 2, own);
    const auto words = [&](std::size_t param) {
      return reinterpret_cast<std::uint16_t*>(reducer.grad_view(param).data());
    };
    std::fill_n(words(1), 2, group.rank() == 0 ? 0x3f80 : 0x4080);  // 1 or 4
    std::fill_n(words(2), 2, group.rank() == 0 ? 0x3c00 : 0x4400);
    for (std::size_t param = 0; param < 3; ++param) reducer.mark_ready(param);
    reducer.finish();
    EXPECT_EQ(reinterpret_cast<const double*>(reducer.grad_view(0).data())[1], 2.5);
    EXPECT_EQ(words(1)[1], 0x4020);
    EXPECT_EQ(words(2)[1], 0x4100);
  });
}

TEST_P(DdpOn, NoSyncCollectsMicroBatches) {
  run(2, [](ProcessGroup& group) {
    Reducer reducer(group, two_params());
    const auto micro_batch = [&](float value, bool first, std::size_t from = 0) {
      reducer.begin_step({.samples = 3});
      if (from == 1) reducer.mark_unused(0);
      for (std::size_t param = from; param < 2; ++param) {
        for (float& element : floats(reducer.grad_view(param)))
          element = (first ? 0 : element) + value;
        reducer.mark_ready(param);
      }
      return reducer.finish().samples;
    };
    for (int round = 0; round < 3; ++round) {  // before and after the buckets are made anew
      {
        const auto scope = reducer.no_sync();
        EXPECT_EQ(micro_batch(1, true), 3);
        EXPECT_EQ(micro_batch(2, false), 6);
      }
      EXPECT_EQ(micro_batch(3, false, 1), 18);  // 3 and 6 of the views on each rank
      for (const float element : floats(reducer.grad_view(0))) EXPECT_EQ(element, 6.0f / 18);
      EXPECT_EQ(mean_of(reducer, 1), std::vector<float>(6, 12.0f / 18));
    }
  });
}

// The first bucket is reduced on all ranks before the last gradient is there.
TEST_P(DdpOn, BucketsLeaveDuringBackward) {
  run(3, [](ProcessGroup& group) {
    for (const ReduceMode mode : {ReduceMode::fast, ReduceMode::reproducible}) {
      Reducer reducer(group, two_params(),
                      {.mode = mode, .shards = 3, .first_bucket_bytes = 1, .bucket_bytes = 1});
      std::vector<std::string> done;
      contract::Latch first(1);
      Deadline marked{};
      reducer.on_bucket_done([&](const Bucket& bucket) {
        EXPECT_EQ(bucket.params.size(), 1u);
        EXPECT_GE(bucket.ready_at, marked) << "not before its gradient was marked";
        EXPECT_LE(bucket.ready_at, std::chrono::steady_clock::now());
        done.push_back(bucket.params[0].spec->name);
        EXPECT_EQ(static_cast<const float*>(bucket.gradient.data)[0], 1);
        if (done.size() == 1) first.count_down();
      });
      reducer.begin_step({.samples = 1});
      fill(reducer, 1, 1);
      marked = std::chrono::steady_clock::now();
      reducer.mark_ready(1);
      first.wait();
      fill(reducer, 0, 1);
      marked = std::chrono::steady_clock::now();
      reducer.mark_ready(0);
      reducer.finish();
      EXPECT_EQ(done, (std::vector<std::string>{"b", "a"}));
    }
  });
}

// The last bucket waits until the first one was used, in every step.
TEST_P(DdpOn, FinishHandsOutBucketsWhileOthersAreOnTheirWay) {
  run(2, [](ProcessGroup& group) {
    Reducer reducer(group, two_params(), {.first_bucket_bytes = 1, .bucket_bytes = 1});
    std::optional<contract::Latch> used;
    reducer.set_hook([&](ProcessGroup& own, const Bucket& bucket) {
      if (bucket.index == 1) used->wait();
      own.all_reduce(bucket.gradient);
      divide(bucket.gradient, bucket.samples);
    });
    for (int step = 0; step < 2; ++step) {
      used.emplace(1);
      reducer.begin_step({.samples = 1});
      for (const std::size_t param : {1, 0}) {
        fill(reducer, param, static_cast<float>(group.rank() + 1));
        reducer.mark_ready(param);
      }
      std::vector<std::size_t> params;
      const auto caller = std::this_thread::get_id();
      reducer.finish([&](const Bucket& bucket) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_EQ(bucket.samples, 2);
        const BucketParam& param = bucket.params[0];
        params.push_back(param.index);
        const auto* mean = static_cast<const float*>(bucket.gradient.data) + param.offset;
        EXPECT_EQ(std::vector<float>(mean, mean + param.spec->count()),
                  std::vector<float>(param.spec->count(), 1.5f));
        used->count_down();
      });
      EXPECT_EQ(params, (std::vector<std::size_t>{1, 0}));
    }
  });
}

TEST_P(DdpOn, FinishHandsOutNothingUnderNoSync) {
  run(2, [](ProcessGroup& group) {
    Reducer reducer(group, two_params());
    int used = 0;
    const auto micro_batch = [&] {
      reducer.begin_step({.samples = 1});
      for (const std::size_t param : {1, 0}) reducer.mark_unused(param);
      reducer.finish([&](const Bucket&) { ++used; });
    };
    for (int round = 1; round <= 3; ++round) {
      {
        const auto scope = reducer.no_sync();
        micro_batch();
      }
      EXPECT_EQ(used, round - 1);
      micro_batch();
      EXPECT_EQ(used, round);
    }
  });
}

TEST(Ddp, BucketsHoldAnEighthOfTheGradientsButOneToTwentyFiveMebibytes) {
  const auto limit = [](std::int64_t mebibytes, ReducerOptions options = {}) {
    const std::vector<ParamSpec> params{{.name = "a", .shape = {mebibytes, 1 << 17}},
                                        {.name = "b", .shape = {mebibytes, 1 << 17}}};
    return bytes_per_bucket(params, options);
  };
  const std::size_t mebibyte = 1 << 20;
  EXPECT_EQ(limit(1), mebibyte);
  EXPECT_EQ(limit(8), mebibyte);
  EXPECT_EQ(limit(48), 6 * mebibyte);
  EXPECT_EQ(limit(200), 25 * mebibyte);
  EXPECT_EQ(limit(10'000), 25 * mebibyte);
  EXPECT_EQ(limit(48, {.first_bucket_bytes = 7 * mebibyte}), 7 * mebibyte);
  EXPECT_EQ(limit(48, {.bucket_bytes = 25 * mebibyte}), 25 * mebibyte);
}

// After the first step the buckets follow rank 0's order, whatever the others' is, in the same
// memory: where a gradient was there may be padding now.
TEST_P(DdpOn, BucketsAreRebuiltInTheOrderOfRankZero) {
  run(2, [](ProcessGroup& group) {
    const std::vector<ParamSpec> params{
        {.name = "a", .shape = {4}}, {.name = "b", .shape = {20}}, {.name = "c", .shape = {4}}};
    Reducer reducer(group, params, {.first_bucket_bytes = 1, .bucket_bytes = 1});
    std::string order;
    reducer.on_bucket_done([&](const Bucket& bucket) {
      order += bucket.params[0].spec->name;
      const auto* const values = static_cast<const float*>(bucket.gradient.data);
      for (std::size_t i = bucket.params[0].spec->count(); i < bucket.gradient.count; ++i)
        EXPECT_EQ(values[i], 0) << "padding of " << bucket.params[0].spec->name;
    });
    for (int step = 0; step < 3; ++step) {
      reducer.begin_step({.samples = 1});
      using Marks = std::vector<std::size_t>;
      for (const std::size_t param : group.rank() == 0 ? Marks{1, 2, 0} : Marks{0, 1, 2}) {
        fill(reducer, param, static_cast<float>(param + 1));
        reducer.mark_ready(param);
      }
      reducer.finish();
      for (std::size_t param = 0; param < 3; ++param)
        EXPECT_EQ(mean_of(reducer, param),
                  std::vector<float>(params[param].count(), static_cast<float>(param + 1)));
    }
    EXPECT_EQ(order, "cbabcabca");
  });
}

TEST_P(DdpOn, ParametersMayBeEmptyAndFrozenByTurns) {
  run(2, [](ProcessGroup& group) {
    const std::vector<ParamSpec> params{{"none", {0}}, {"a", {4}}, {"b", {4}}, {"last", {2, 0}}};
    Reducer reducer(group, params, {.bucket_bytes = 1, .check_hash = true});
    for (std::size_t step = 0; step < 4; ++step) {
      reducer.begin_step({.samples = 1});
      for (const std::size_t param : {3, 2, 1, 0}) {
        fill(reducer, param, 2);
        const bool frozen = (step + param + static_cast<std::size_t>(group.rank())) % 2 == 0;
        frozen ? reducer.mark_unused(param) : reducer.mark_ready(param);
      }
      reducer.finish();
      for (const std::size_t param : {1, 2})
        EXPECT_EQ(mean_of(reducer, param), std::vector<float>(4, 1.0f));
    }
  });
}

TEST_P(DdpOn, GradientsMayBeMarkedFromSeveralThreads) {
  run(2, [](ProcessGroup& group) {
    std::vector<ParamSpec> params;
    for (int i = 0; i < 16; ++i)
      params.push_back({.name = "p" + std::to_string(i), .shape = {i + 1}});
    Reducer reducer(group, params, {.first_bucket_bytes = 128, .bucket_bytes = 128});
    for (int step = 0; step < 5; ++step) {
      reducer.begin_step({.samples = 1});
      contract::run_threads(2, [&](int thread) {
        for (auto param = static_cast<std::size_t>(thread); param < 16; param += 2) {
          fill(reducer, param, static_cast<float>(param));
          reducer.mark_ready(param);
        }
      });
      reducer.finish();
      for (std::size_t param = 0; param < 16; ++param)
        EXPECT_EQ(mean_of(reducer, param),
                  std::vector<float>(param + 1, static_cast<float>(param)));
    }
  });
}

TEST_P(DdpOn, CallersGroupStaysFree) {
  run(2, [](ProcessGroup& group) {
    Reducer reducer(group, two_params());
    reducer.begin_step({.samples = 1});
    fill(reducer, 1, 2);
    reducer.mark_ready(1);
    contract::expect_usable(group);
    fill(reducer, 0, 2);
    reducer.mark_ready(0);
    reducer.finish();
    EXPECT_EQ(mean_of(reducer, 0), std::vector<float>(4, 2.0f));
  });
}

TEST_P(DdpOn, ModelWithoutParametersCountsSamples) {
  run(2, [](ProcessGroup& group) {
    Reducer reducer(group, {});
    for (int step = 0; step < 3; ++step) {
      reducer.begin_step({.samples = group.rank() + 1});
      EXPECT_EQ(reducer.finish().samples, 3);
    }
  });
}

C10D_ON_EACH_BACKEND(DdpOn);

}}  // namespace c10d::parallel
